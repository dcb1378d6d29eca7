import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * Kafka's producer at a pace.
 *
 * <pre>
 * java -cp CLASSPATH PacedProducer.java TEXT VALUE_SIZE
 * line in:   BOOTSTRAP TOPIC CODEC PARTITIONS BATCH_SIZE RECORDS_PER_SECOND SECONDS
 * line out:  JSON: records, bytes (sent to the broker), seconds; or error
 * </pre>
 *
 * A producer stays open for further lines with the same broker, codec and batch size. Records have
 * no key; they go to the partitions in turns, so that the batches of all are full at about the same
 * time. linger.ms is long enough that only the size ends a batch, except for the last of a line.
 */
public final class PacedProducer {
    private static final long LEAST_SLEEP_NS = 500_000;
    private static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private PacedProducer() {
    }

    public static void main(String[] args) throws Exception {
        byte[] text = Files.readAllBytes(Path.of(args[0]));
        byte[][] values = new byte[4096][Integer.parseInt(args[1])];
        for (int i = 0; i < values.length; i++) {
            int start = (int) (i * 9973L % (text.length - values[i].length));
            System.arraycopy(text, start, values[i], 0, values[i].length);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println(run(line.split(" "), values));
            } catch (Exception error) {
                String message = error.toString().replaceAll("[\"\\\\\n]", " ");
                System.out.println("{\"error\": \"" + message + "\"}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<byte[], byte[]> producer(
            String bootstrap, String codec, String batchSize) {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", bootstrap,
                "compression.type", codec,
                "batch.size", batchSize,
                "linger.ms", 1000,
                "max.request.size", 4 << 20,
                "connections.max.idle.ms", 3_600_000);
        return producers.computeIfAbsent(String.join(" ", bootstrap, codec, batchSize),
                key -> new KafkaProducer<>(
                        config, new ByteArraySerializer(), new ByteArraySerializer()));
    }

    private static double sentBytes(KafkaProducer<byte[], byte[]> producer) {
        for (Metric metric : producer.metrics().values()) {
            if (metric.metricName().name().equals("outgoing-byte-total")
                    && metric.metricName().group().equals("producer-metrics")) {
                return (double) metric.metricValue();
            }
        }
        throw new IllegalStateException("no metric outgoing-byte-total");
    }

    private static String run(String[] words, byte[][] values) throws Exception {
        String topic = words[1];
        int partitions = Integer.parseInt(words[3]);
        double pace = Double.parseDouble(words[5]);
        long length = (long) (Double.parseDouble(words[6]) * 1e9);
        KafkaProducer<byte[], byte[]> producer = producer(words[0], words[2], words[4]);
        producer.partitionsFor(topic);
        AtomicReference<Exception> failure = new AtomicReference<>();
        double bytes = sentBytes(producer);
        long start = System.nanoTime();
        long records = 0;
        for (long passed = 0; passed < length; passed = System.nanoTime() - start) {
            long wait = (long) (records / pace * 1e9) - passed;
            if (wait > 0) {
                LockSupport.parkNanos(Math.max(wait, LEAST_SLEEP_NS));
                continue;
            }
            byte[] value = values[(int) (records % values.length)];
            int partition = (int) (records++ % partitions);
            var record = new ProducerRecord<byte[], byte[]>(topic, partition, null, value);
            producer.send(record, (metadata, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                }
            });
        }
        producer.flush();
        long took = System.nanoTime() - start;
        if (failure.get() != null) {
            throw failure.get();
        }
        return String.format(Locale.ROOT,
                "{\"records\": %d, \"bytes\": %.0f, \"seconds\": %.6f}",
                records, sentBytes(producer) - bytes, took / 1e9);
    }
}
