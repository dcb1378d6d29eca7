package batchval.oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Values for a constructor or method whose parameters differ between the releases of Kafka. Each
 * parameter takes the next value of its type; values that no parameter takes are left out.
 */
final class Arguments {
    private static final Map<Class<?>, Class<?>> BOXES = Map.of(
        boolean.class, Boolean.class, byte.class, Byte.class, short.class, Short.class,
        int.class, Integer.class, long.class, Long.class);

    private final Object[] values;

    private Arguments(Object[] values) {
        this.values = values;
    }

    static Arguments of(Object... values) {
        return new Arguments(values);
    }

    /** Return a value for each parameter, or null where one has none. */
    Object[] forParameters(Class<?>[] types) {
        List<Object> left = new ArrayList<>(List.of(values));
        Object[] taken = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            if (types[i] == Object.class)
                continue;  // VerificationGuard before 3.7: null asks for no verification
            Class<?> type = BOXES.getOrDefault(types[i], types[i]);
            int at = 0;
            while (at < left.size() && !type.isInstance(left.get(at)))
                at++;
            if (at == left.size())
                return null;
            taken[i] = left.remove(at);
        }
        return taken;
    }
}
