package batchval.oracle;

import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.stream.Stream;

/**
 * Calls what has other names or parameters in other releases of Kafka. What the called code throws
 * is thrown as it is; Missing says what this release does not have, and ends the oracle.
 */
final class Reflect {
    static final class Missing extends RuntimeException {
        Missing(Object what) {
            super(String.valueOf(what));
        }
    }

    /** Return the first of these classes that this release has, or null. */
    static Class<?> find(String... names) {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        return null;
    }

    static Class<?> need(String... names) {
        Class<?> found = find(names);
        if (found == null)
            throw new Missing("no class " + String.join(", ", names));
        return found;
    }

    /** Call the constructor that takes the most of these values. */
    static Object make(Class<?> of, Object... values) {
        Match<Constructor<?>> best =
            Match.best(Arrays.stream(of.getConstructors()), Arguments.of(values));
        if (best == null)
            throw new Missing("no constructor of " + of + " for these values");
        return run(() -> best.what.newInstance(best.values));
    }

    /** Call the method that takes the most of these values. */
    static Object call(Object target, String name, Object... values) {
        return call(target.getClass(), target, name, values);
    }

    static Object callStatic(Class<?> of, String name, Object... values) {
        return call(of, null, name, values);
    }

    private static Object call(Class<?> of, Object target, String name, Object... values) {
        Match<Method> best = Match.best(
            Arrays.stream(of.getMethods()).filter(m -> m.getName().equals(name)),
            Arguments.of(values));
        if (best == null)
            throw new Missing("no " + of.getName() + "." + name + " for these values");
        best.what.setAccessible(true);
        return run(() -> best.what.invoke(target, best.values));
    }

    static boolean hasMethod(Class<?> of, String name) {
        return Arrays.stream(of.getDeclaredMethods()).anyMatch(m -> m.getName().endsWith(name));
    }

    /** Return what the first of these accessors or public fields gives. */
    static Object get(Object target, String... names) {
        for (String name : names) {
            for (Method m : target.getClass().getMethods())
                if (m.getName().equals(name) && m.getParameterCount() == 0)
                    return call(target, name);
            for (Field f : target.getClass().getFields())
                if (f.getName().equals(name))
                    return run(() -> f.get(target));
        }
        throw new Missing(target.getClass() + " has no " + String.join(", ", names));
    }

    /** Return an object of Scala, by its name or by its class. */
    static Object module(String name) {
        return module(need(name + "$"));
    }

    static Object module(Class<?> of) {
        return getStatic(of, "MODULE$");
    }

    static Object getStatic(Class<?> of, String field) {
        return run(() -> of.getField(field).get(null));
    }

    /** Return an object of this interface whose methods do nothing. */
    static Object doingNothing(Class<?> of) {
        return Proxy.newProxyInstance(Reflect.class.getClassLoader(), new Class<?>[]{of},
            (proxy, method, args) -> null);
    }

    private record Match<E extends Executable>(E what, Object[] values) {
        static <E extends Executable> Match<E> best(Stream<E> all, Arguments arguments) {
            Match<E> best = null;
            for (E one : all.toList()) {
                Object[] values = arguments.forParameters(one.getParameterTypes());
                if (values != null && (best == null || values.length > best.values.length))
                    best = new Match<>(one, values);
            }
            return best;
        }
    }

    private interface Call {
        Object run() throws ReflectiveOperationException;
    }

    private static Object run(Call call) {
        try {
            return call.run();
        } catch (InvocationTargetException e) {
            throw Reflect.<RuntimeException>asItIs(e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new Missing(e);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> T asItIs(Throwable thrown) throws T {
        throw (T) thrown;
    }

    private Reflect() { }
}
