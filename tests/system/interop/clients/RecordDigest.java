import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the version of the Java client, then the digest of the first COUNT records of each topic.
 * The canonical form of a record is that of tests/support/record_digest.py.
 *
 * java -cp CLASSPATH RecordDigest.java BOOTSTRAP TOPIC=COUNT...
 */
public class RecordDigest {
    private static final ByteArrayDeserializer BYTES = new ByteArrayDeserializer();

    public static void main(String[] args) throws Exception {
        System.out.println(version());
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "check.crcs", true,
                "auto.offset.reset", "earliest", "enable.auto.commit", false,
                "fetch.max.wait.ms", 20);
        for (int i = 1; i < args.length; i++) {
            String[] wanted = args[i].split("=");
            TopicPartition partition = new TopicPartition(wanted[0], 0);
            try (var consumer = new KafkaConsumer<byte[], byte[]>(config, BYTES, BYTES)) {
                consumer.assign(List.of(partition));
                print(consumer, wanted[0], Long.parseLong(wanted[1]));
            }
        }
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        String name = "/kafka/kafka-version.properties";
        try (InputStream in = KafkaConsumer.class.getResourceAsStream(name)) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }

    private static void print(KafkaConsumer<byte[], byte[]> consumer, String topic, long count)
            throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long read = 0;
        while (read < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                if (read < count) {
                    digest.update(canonical(record));
                    read++;
                }
            }
        }
        System.out.println(topic + " " + read + " " + HexFormat.of().formatHex(digest.digest()));
    }

    private static byte[] canonical(ConsumerRecord<byte[], byte[]> record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        write(out, record.key());
        write(out, record.value());
        out.writeInt(record.headers().toArray().length);
        for (Header header : record.headers()) {
            write(out, header.key().getBytes(StandardCharsets.UTF_8));
            write(out, header.value());
        }
        return bytes.toByteArray();
    }

    private static void write(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data == null ? -1 : data.length);
        if (data != null) {
            out.write(data);
        }
    }
}
