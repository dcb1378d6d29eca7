import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/**
 * What one operation has found: a line of JSON, printed once. Arguments are NAME=VALUE.
 *
 * A client may wait for ever. After {@code seconds} what is known is printed, and the program ends.
 */
final class Report {
    private final Map<String, String> arguments = new LinkedHashMap<>();
    private final Map<String, String> fields = new LinkedHashMap<>();
    private final MessageDigest digest;
    private long records;
    private long last = -1;
    private long disordered;
    private boolean printed;

    Report(String[] pairs) throws NoSuchAlgorithmException {
        for (String pair : pairs) {
            int end = pair.indexOf('=');
            arguments.put(pair.substring(0, end), pair.substring(end + 1));
        }
        digest = MessageDigest.getInstance("SHA-256");
        Thread limit = new Thread(() -> {
            try {
                Thread.sleep(1000 * number("seconds"));
            } catch (InterruptedException ended) {
                return;
            }
            print(new IOException("not finished after " + argument("seconds") + " s"));
        });
        limit.setDaemon(true);
        limit.start();
    }

    /** Print what is known, with the error unless it is null, and end the program. */
    synchronized void print(Throwable error) {
        if (!printed) {
            printed = true;
            if (records > 0) {
                put("digest", quoted(HexFormat.of().formatHex(digest.digest())));
            }
            put("records", records);
            put("disordered", disordered);
            put("error", error == null ? "null" : quoted(text(error)));
            StringBuilder line = new StringBuilder();
            fields.forEach((name, value) -> line.append(line.length() == 0 ? "{" : ", ")
                    .append(quoted(name)).append(": ").append(value));
            System.out.println(line.append("}"));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String text(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    private static String quoted(String text) {
        String one = text.replaceAll("[\\x00-\\x1f]+", " ");
        return '"' + one.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    synchronized void put(String name, long value) {
        fields.put(name, Long.toString(value));
    }

    synchronized void put(String name, String json) {
        fields.put(name, json);
    }

    /** Begin a topic, whose offsets start anew. */
    synchronized void begin() {
        last = -1;
    }

    /** Count and digest a record; say so where its offset does not rise. */
    synchronized void add(long offset, byte[] key, byte[] value) {
        if (offset <= last) {
            disordered++;
        }
        last = offset;
        records++;
        add(key);
        add(value);
    }

    private void add(byte[] data) {
        digest.update(ByteBuffer.allocate(4).putInt(data == null ? -1 : data.length).array());
        if (data != null) {
            digest.update(data);
        }
    }

    String argument(String name) {
        return arguments.get(name);
    }

    /** The values of an argument, with commas between them. */
    String[] list(String name) {
        return arguments.get(name).split(",");
    }

    long number(String name) {
        return Long.parseLong(arguments.get(name));
    }

    /** The key of a record, as tests/system/interop/old_clients/records.py has it. */
    static byte[] key(long number) {
        return number % 50 == 24 ? null : ("key-" + number).getBytes(StandardCharsets.UTF_8);
    }

    /** The value of a record, as tests/system/interop/old_clients/records.py has it. */
    static byte[] value(long number) {
        String text = "value-" + number + "-" + ".".repeat((int) (number % 100));
        return number % 50 == 49 ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    /** Properties of every client: its servers, and its user where there is one. */
    Properties client() throws IOException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", argument("bootstrap"));
        String mechanism = argument("mechanism");
        if (mechanism != null) {
            String name = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
            // sasl.jaas.config came with 0.10.2
            Path login = Files.createTempFile("login", ".conf");
            Files.writeString(login, "KafkaClient { org.apache.kafka.common.security." + name
                    + "LoginModule required username=\"" + argument("user") + "\" password=\""
                    + argument("password") + "\"; };\n");
            login.toFile().deleteOnExit();
            System.setProperty("java.security.auth.login.config", login.toString());
            properties.put("security.protocol", "SASL_PLAINTEXT");
            properties.put("sasl.mechanism", mechanism);
        }
        return properties;
    }
}
