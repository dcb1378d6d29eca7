package batchval.oracle;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** Which Kafka this is. */
public final class Kafka {
    /** The release, for example 4.4.0. */
    public static final String VERSION = property("kafka");
    /** The version that a case names: 3.9, 4.1 or 4.4. */
    public static final String LINE = property("line");
    /** Whose answers a case without kafka_version has. */
    public static final String DEFAULT_LINE = "4.4";

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
