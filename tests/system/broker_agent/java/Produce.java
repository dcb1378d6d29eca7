import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs a Java producer for each scenario of a line of the arguments, and prints how it ended.
 *
 * java -cp CLASSPATH Produce SCENARIO:CODEC:BOOTSTRAP...
 *
 * A line of output: SCENARIO CODEC, the number of records that were acknowledged, and the errors'
 * classes. The values of records start with the scenario's and the record's number.
 */
public class Produce {
    static final int RECORDS = 240;
    /** Of the values in scenarios where batches fail, or whose names end with "ids". */
    static final int[] SCHEMA_IDS = {300, 7, 100_001};
    static final long NOW = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            String[] parts = arg.split(":", 3);
            System.out.println(parts[0] + " " + parts[1] + " " + run(parts[0], parts[1], parts[2]));
        }
        Runtime.getRuntime().halt(0);
    }

    static String run(String scenario, String codec, String bootstrap) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "compression.type", codec, "batch.size", 4096, "linger.ms", 1000,
            "retry.backoff.ms", 5, "reconnect.backoff.ms", 5, "reconnect.backoff.max.ms", 50,
            "max.block.ms", 60_000,
            "delivery.timeout.ms", 100_000));
        boolean transactional = scenario.equals("transactional");
        switch (scenario) {
            case "plain", "older" -> config.put("enable.idempotence", false);
            case "transactional" -> config.put("transactional.id", "t-" + codec);
            case "large" -> config.put("batch.size", 1 << 20);
            case "split" -> config.put("batch.size", 512);
            case "tiny" -> config.put("batch.size", 1);
            default -> { }
        }
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(config, bytes, bytes)) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            Random chance = new Random(scenario.hashCode() * 31L + codec.hashCode());
            for (int i = 0; i < records(scenario); i++)
                sent.add(send(producer, record(scenario, codec, i, chance),
                    i < 2 && waits(scenario)));
            producer.flush();
            if (transactional)
                producer.commitTransaction();
            return outcome(sent);
        }
    }

    /**
     * Whether the first record of each partition is acknowledged before there is a second. Where
     * batches fail, the broker has to know the producer before. A real broker creates the topic
     * for it: while the partition has no leader yet it may refuse the first batch and take the
     * second, and then the first never more (KAFKA-14359).
     */
    static boolean waits(String scenario) {
        return fails(scenario) || scenario.endsWith("ids")
            || List.of("nullkeys", "transactional").contains(scenario);
    }

    /** Send a record; {@code first}: and wait until it is acknowledged. */
    static Future<RecordMetadata> send(KafkaProducer<byte[], byte[]> producer,
            ProducerRecord<byte[], byte[]> record, boolean first) throws Exception {
        Future<RecordMetadata> sent = producer.send(record);
        if (first) {
            producer.flush();
            sent.get();
        }
        return sent;
    }

    static boolean fails(String scenario) {
        return List.of("retried", "split", "reopened").contains(scenario);
    }

    static int records(String scenario) {
        return switch (scenario) {
            case "alone", "toolarge" -> 1;
            case "tiny" -> 12;
            default -> RECORDS;
        };
    }

    static ProducerRecord<byte[], byte[]> record(String scenario, String codec, int i,
            Random chance) {
        byte[] key = switch (scenario) {
            case "nullkeys" -> null;
            case "keys" -> new byte[i % 3];
            default -> chance.nextInt(3) == 0 ? null : new byte[chance.nextInt(40)];
        };
        // small and large records, so that length fields have one, two and three bytes
        int size = switch (chance.nextInt(12)) {
            case 0 -> 0;
            case 1 -> scenario.equals("split") ? 150 : 2000 + chance.nextInt(1500);
            case 2 -> scenario.equals("large") ? 9000 + chance.nextInt(2000) : 60;
            default -> 20 + chance.nextInt(90);
        };
        byte[] value = chance.nextInt(25) == 0 ? null : new byte[size];
        if (value != null) {
            for (int at = 0; at < size; at++)
                value[at] = (byte) (chance.nextInt(3) == 0 ? chance.nextInt(256) : 'a');
            // a first byte 0 announces a schema id
            if (size > 0 && value[0] == 0)
                value[0] = 'a';
        }
        if (scenario.equals("alone") || scenario.equals("toolarge"))
            value = new byte[300];
        if (value != null && (scenario.endsWith("ids") || fails(scenario)))
            value = withSchemaId(value, SCHEMA_IDS[chance.nextInt(SCHEMA_IDS.length)]);
        int partition = scenario.equals("reopened") ? 0 : i % 2;
        var record = new ProducerRecord<>("t-" + scenario + "-" + codec, partition,
            NOW - chance.nextInt(5_000_000), key, value);
        for (int h = chance.nextInt(4); h > 1; h--)
            record.headers().add("kopf-\u00fc" + h, chance.nextBoolean() ? null : new byte[h]);
        return record;
    }

    /** Return a value that starts as Confluent's serializers have it: a byte 0 and the id. */
    static byte[] withSchemaId(byte[] value, int id) {
        return ByteBuffer.allocate(5 + value.length).put((byte) 0).putInt(id).put(value).array();
    }

    static String outcome(List<Future<RecordMetadata>> sent) throws InterruptedException {
        int acknowledged = 0;
        Map<String, Integer> errors = new HashMap<>();
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
                acknowledged++;
            } catch (ExecutionException error) {
                errors.merge(error.getCause().getClass().getSimpleName(), 1, Integer::sum);
            }
        }
        return acknowledged + " " + errors;
    }
}
