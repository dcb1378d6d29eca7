package batchval.producer.agent;

import java.util.Locale;

/**
 * The options of the agent, properties separated by {@code ;}.
 *
 * @param carrier   the value of {@code carrier}
 * @param schemaIds the value of {@code schema.ids}: whether claims state the ids at the start of
 *     the values
 */
public record Options(Carrier carrier, boolean schemaIds) {
    private static final String CARRIER = "carrier";
    private static final String SCHEMA_IDS = "schema.ids";

    /**
     * Parse what stands after {@code =} of {@code -javaagent}; null and blank are the defaults.
     *
     * @throws IllegalArgumentException an unknown option or value, or two that exclude each other
     */
    public static Options parse(String text) {
        Carrier carrier = Carrier.TAG;
        boolean schemaIds = false;
        for (String property : text == null ? new String[0] : text.split(";")) {
            if (property.isBlank())
                continue;
            int equals = property.indexOf('=');
            String name = (equals < 0 ? property : property.substring(0, equals)).strip();
            if (equals < 0 || !name.equals(CARRIER) && !name.equals(SCHEMA_IDS))
                throw new IllegalArgumentException("unknown option '" + property.strip()
                    + "': expected carrier=tag, carrier=payload, carrier=none, schema.ids=true"
                    + " or schema.ids=false");
            String value = property.substring(equals + 1).strip();
            if (name.equals(CARRIER))
                carrier = carrier(value);
            else
                schemaIds = schemaIds(value);
        }
        if (schemaIds && carrier == Carrier.NONE)
            throw new IllegalArgumentException(
                "schema.ids=true needs carrier to be tag or payload, not 'none'");
        return new Options(carrier, schemaIds);
    }

    private static boolean schemaIds(String value) {
        if (value.equals("true") || value.equals("false"))
            return value.equals("true");
        throw new IllegalArgumentException("invalid schema.ids '" + value
            + "': expected true or false");
    }

    private static Carrier carrier(String value) {
        for (Carrier carrier : Carrier.values())
            if (value.equals(carrier.toString().toLowerCase(Locale.ROOT)))
                return carrier;
        throw new IllegalArgumentException("invalid carrier '" + value
            + "': expected tag, payload or none");
    }

    @Override
    public String toString() {
        return CARRIER + "=" + carrier.toString().toLowerCase(Locale.ROOT)
            + (schemaIds ? ", " + SCHEMA_IDS + "=true" : "");
    }
}
