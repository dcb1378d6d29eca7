package batchval.oracle;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** Which Kafka this is. */
public final class Kafka {
    public static final String VERSION = version();

    private static String version() {
        Properties p = new Properties();
        try (InputStream in = Kafka.class.getResourceAsStream("/oracle.properties")) {
            p.load(in);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return p.getProperty("kafka");
    }

    private Kafka() { }
}
