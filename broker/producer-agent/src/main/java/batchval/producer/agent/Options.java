package batchval.producer.agent;

import java.util.Locale;

/**
 * The options of the agent, properties separated by {@code ;}.
 *
 * @param carrier the value of {@code carrier}
 */
public record Options(Carrier carrier) {
    /**
     * Parse what stands after {@code =} of {@code -javaagent}; null and blank are the defaults.
     *
     * @throws IllegalArgumentException an unknown option or value
     */
    public static Options parse(String text) {
        Carrier carrier = Carrier.TAG;
        for (String property : text == null ? new String[0] : text.split(";")) {
            if (property.isBlank())
                continue;
            int equals = property.indexOf('=');
            String name = (equals < 0 ? property : property.substring(0, equals)).strip();
            if (!name.equals("carrier") || equals < 0)
                throw new IllegalArgumentException("unknown option '" + property.strip()
                    + "': expected carrier=tag, carrier=payload or carrier=none");
            carrier = carrier(property.substring(equals + 1).strip());
        }
        return new Options(carrier);
    }

    private static Carrier carrier(String value) {
        for (Carrier carrier : Carrier.values())
            if (value.equals(carrier.toString().toLowerCase(Locale.ROOT)))
                return carrier;
        throw new IllegalArgumentException("invalid carrier '" + value
            + "': expected tag, payload or none");
    }
}
