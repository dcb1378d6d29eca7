package batchval.oracle;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** Which Kafka this is. */
public final class Kafka {
    /** The release, for example 4.2.1: a case names it. */
    public static final String RELEASE = property("kafka");
    /** Whose answers a case without kafka_version has. */
    public static final String DEFAULT_RELEASE = "4.4.0";

    private static String property(String name) {
        Properties p = new Properties();
        try (InputStream in = Kafka.class.getResourceAsStream("/oracle.properties")) {
            p.load(in);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return p.getProperty(name);
    }

    private Kafka() { }
}
