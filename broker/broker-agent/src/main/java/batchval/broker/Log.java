package batchval.broker;

import java.lang.reflect.Method;

/** Writes to the broker's slf4j if it has one, else to standard error. */
public final class Log {
    private final Object logger;
    private final Method info;
    private final Method warn;

    Log() {
        Object found = null;
        Method infoMethod = null;
        Method warnMethod = null;
        try {
            ClassLoader loader = ClassLoader.getSystemClassLoader();
            Class<?> logger = Class.forName("org.slf4j.Logger", true, loader);
            Class<?> factory = Class.forName("org.slf4j.LoggerFactory", true, loader);
            infoMethod = logger.getMethod("info", String.class);
            warnMethod = logger.getMethod("warn", String.class);
            found = factory.getMethod("getLogger", String.class).invoke(null, "batchval.broker");
        } catch (ReflectiveOperationException | LinkageError e) {
            // a JVM without slf4j
        }
        logger = found;
        info = infoMethod;
        warn = warnMethod;
    }

    public void info(String message) {
        write(info, message);
    }

    public void warn(String message) {
        write(warn, message);
    }

    private void write(Method method, String message) {
        String line = "batchval: " + message;
        try {
            if (logger != null) {
                method.invoke(logger, line);
                return;
            }
        } catch (ReflectiveOperationException | RuntimeException e) {
            // standard error gets the line
        }
        System.err.println(line);
    }
}
