import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Notes each acknowledgement of a producer, which is idempotent from 0.11 on. Compiles with the
 * clients of 0.8.2 too. Record n goes to partition n modulo PARTITIONS; values are those of
 * record_checker.py. Spread over SECONDS; sends until its standard input ends and SHARE records
 * are out.
 *
 * java -cp CLASSPATH Sender.java BOOTSTRAP TOPIC PARTITIONS NUMBER SHARE SECONDS CODEC FILE
 * IN_FLIGHT TIMEOUT_MS
 *
 * FILE: of each acknowledgement int64 sequence, int32 partition, int64 offset. Standard output:
 * "sending" at the first acknowledgement, at the end "sent N", then a line for each error.
 */
public class Sender {
    private static final long FLUSH_NS = 20_000_000;
    private static long flushed;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int number = Integer.parseInt(args[3]);
        long share = Long.parseLong(args[4]);
        double seconds = Double.parseDouble(args[5]);
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", args[0], "acks", "all",
                "enable.idempotence", true, "delivery.timeout.ms", Integer.MAX_VALUE,
                "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200, "retry.backoff.ms", 20,
                "retry.backoff.max.ms", 200));
        config.put("request.timeout.ms", Integer.parseInt(args[9]));
        config.put("retries", Integer.MAX_VALUE);
        config.put("linger.ms", 2);
        config.put("max.in.flight.requests.per.connection", Integer.parseInt(args[8]));
        config.put("compression.type", args[6]);
        config.put("max.block.ms", 180_000);
        int[] seeds = new int[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            CRC32 crc = new CRC32();
            crc.update((topic + "-" + partition).getBytes(StandardCharsets.UTF_8));
            seeds[partition] = (int) crc.getValue();
        }
        AtomicBoolean over = new AtomicBoolean();
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // only the end is waited for
                }
            } catch (java.io.IOException error) {
                // it is the end, too
            }
            over.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        AtomicLong acknowledged = new AtomicLong();
        StringBuffer errors = new StringBuffer();
        long sent = 0;
        long started = System.nanoTime();
        try (var acks = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(args[7]))));
                var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (!(over.get() && sent >= share)) {
                long sequence = sent++;
                int partition = (int) (sequence % partitions);
                ByteBuffer value = ByteBuffer.allocate(40);
                value.putShort((short) number).putInt(seeds[partition]).putLong(sequence);
                value.put(sha.digest(Arrays.copyOf(value.array(), 14)), 0, 8);
                Arrays.fill(value.array(), 22, 40, (byte) '.');
                byte[] data = value.array();
                var record = new ProducerRecord<byte[], byte[]>(topic, partition, null, data);
                Callback noted = (where, error) -> {
                    if (error != null) {
                        errors.append(sequence).append(": ").append(error).append('\n');
                        return;
                    }
                    try { // one thread calls back
                        acks.writeLong(sequence);
                        acks.writeInt(where.partition());
                        acks.writeLong(where.offset());
                        if (System.nanoTime() - flushed > FLUSH_NS) {
                            acks.flush();
                            flushed = System.nanoTime();
                        }
                    } catch (java.io.IOException failed) {
                        errors.append(failed).append('\n');
                    }
                    if (acknowledged.getAndIncrement() == 0) {
                        System.out.println("sending");
                    }
                };
                while (!isQueued(producer, record, noted)) {
                    Thread.sleep(1);
                }
                double ahead = (double) sent / share * seconds - (System.nanoTime() - started) / 1e9;
                if (sent % 50 == 0 && ahead > 0 && !over.get()) {
                    Thread.sleep((long) Math.min(Math.max(ahead * 1000, 1), 50));
                }
            }
        }
        System.out.println("sent " + sent);
        System.out.print(errors);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /**
     * Send. Return false while the last batch waits to be sent again: clients up to 0.9.0.1 throw
     * then (KAFKA-3594), before they take the record in.
     */
    private static boolean isQueued(KafkaProducer<byte[], byte[]> producer,
            ProducerRecord<byte[], byte[]> record, Callback noted) {
        try {
            producer.send(record, noted);
            return true;
        } catch (IllegalStateException error) {
            if (!"Memory records is not writable".equals(error.getMessage())) {
                throw error;
            }
            return false;
        }
    }
}
