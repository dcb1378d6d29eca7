import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes the topics of fixtures/segments through the Java clients, a batch at a time: records wait
 * for a flush, so what is sent between two flushes is one batch.
 *
 * java -cp CLASSPATH SegmentWriter.java BOOTSTRAP DATA_DIR STEP...
 */
public class SegmentWriter {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final long MINUTE = 60_000;
    /** Hours ago, not years: a broker forgets producers whose newest timestamp is a day old, and cleans accordingly. */
    static final long START = System.currentTimeMillis() / 3_600_000 * 3_600_000 - 6 * 60 * MINUTE;

    static String bootstrap;
    static Path dataDir;
    static Admin admin;
    static final Random random = new Random(8364);

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        dataDir = Path.of(args[1]);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (String step : List.of(args).subList(2, args.length)) {
            switch (step) {
                case "first-epoch", "next-epoch" -> leaderEpoch(step.equals("first-epoch"));
                case "codecs" -> codecs();
                case "idempotent" -> idempotent();
                case "transactions" -> transactions();
                case "append-time" -> appendTime();
                case "rebuilt" -> rebuilt();
                case "rolled" -> rolled();
                case "compacted" -> compacted();
                case "compacted-transactional" -> compactedTransactional();
                case "live" -> live();
                default -> throw new IllegalArgumentException("no such step: " + step);
            }
        }
        Runtime.getRuntime().halt(0); // not exit: the open transaction has to stay open
    }

    // ---- topics

    static void codecs() throws Exception {
        for (String codec : CODECS) {
            String topic = "codec-" + codec;
            create(topic);
            Writer out = new Writer(topic, codec, Map.of("enable.idempotence", "false"));
            out.add(START, "key", "value").batch();
            oddRecords(out);
            for (int i = 0; i < 100; i++) out.add(START + i, "user-" + i % 17, json(i));
            out.batch();
            for (int i = 0; i < 40; i++) out.add(START + 200 + i / 3, (String) null, json(i));
            out.batch();
            out.add(START + 300, bytes("incompressible"), noise(10_000)).batch();
            // more than one block of lz4 (64 KiB) and snappy (32 KiB); for "none" one batch above
            // the rest is enough
            int large = codec.equals("none") ? 2 : 40;
            for (int i = 0; i < large; i++) out.add(START + 400, "page-" + i, json(i).repeat(64));
            out.batch();
            out.add(START + 500, (byte[]) null, null).batch();
            for (int i = 0; i < 500; i++) out.add(START + 600 + i, null, bytes(String.format("%04d", i)));
            out.batch();
        }
    }

    /** What a record may legally be: null or empty wherever that is allowed, and timestamps that leap. */
    static void oddRecords(Writer out) throws Exception {
        byte[] empty = {};
        out.add(START, bytes("key"), null);
        out.add(START, null, bytes("value"));
        out.add(START, (byte[]) null, null);
        out.add(START, empty, empty);
        out.add(START, bytes("key"), empty);
        out.add(START, empty, null);
        out.add(START - 5_000, "earlier", "negative timestamp delta");
        out.add(0, "1970", "timestamp zero: a delta of thirteen digits");
        out.add(START + 30 * MINUTE, "later", "the highest timestamp, not in the last record");
        out.add(START, "header", "one").add("trace", bytes("4bf92f35"));
        out.add(START, "header", "null value").add("null", null);
        out.add(START, "header", "empty value").add("empty", empty);
        out.add(START, "header", "empty key").add("", bytes("x"));
        out.add(START, "header", "same key twice, then Ünïcödé").add("a", bytes("1")).add("a", bytes("2")).add("schlüssel-鍵", bytes("値"));
        Writer many = out.add(START, "header", "many");
        for (int i = 0; i < 70; i++) many.add("h" + i, i % 3 == 0 ? null : bytes("v" + i));
        out.add(START, "key", "x".repeat(300));
        out.batch();
    }

    static void idempotent() throws Exception {
        create("idempotent");
        Writer a = new Writer("idempotent", "none", Map.of());
        Writer b = new Writer("idempotent", "zstd", Map.of());
        for (int i = 0; i < 6; i++) {
            for (int n = 0; n <= i * 3; n++) a.add(START + i * 100 + n, "a-" + n, json(n));
            a.batch();
            for (int n = 0; n <= i * 5; n++) b.add(START + i * 100 + n, "b-" + n, json(n));
            b.batch();
        }
    }

    static void transactions() throws Exception {
        create("transactional");
        Writer plain = new Writer("transactional", "none", Map.of("enable.idempotence", "false"));
        Writer a = transactional("transactional", "a", "none");
        Writer b = transactional("transactional", "b", "lz4");
        plain.some(START, "plain", 2).batch();
        a.begin().some(START + 10, "a committed", 3).batch();
        plain.some(START + 20, "plain between", 1).batch();
        a.some(START + 30, "a committed too", 2).batch();
        a.commit();
        a.begin().some(START + 40, "a aborted", 2).batch();
        a.abort();
        b.begin().some(START + 50, "b aborted", 4).batch(); // open across a's whole transaction
        a.begin().some(START + 60, "a inside b", 1).batch();
        plain.some(START + 70, "plain inside both", 3).batch();
        a.commit();
        b.some(START + 80, "b aborted too", 2).batch();
        b.abort();
        b.begin().some(START + 90, "b committed", 5).batch();
        b.commit();
        a.begin().some(START + 100, "a aborted again", 1).batch();
        a.abort();
        plain.some(START + 110, "plain at last", 2).batch();

        create("transactional-open");
        Writer open = transactional("transactional-open", "open", "none");
        open.begin().some(START, "committed", 2).batch();
        open.commit();
        open.begin().some(START + 10, "neither committed nor aborted", 3).batch();
        new Writer("transactional-open", "none", Map.of())
                .some(START + 20, "beyond the last stable offset", 2).batch();
    }

    static void appendTime() throws Exception {
        create("append-time", "message.timestamp.type", "LogAppendTime");
        for (String codec : CODECS) {
            Writer out = new Writer("append-time", codec, Map.of("enable.idempotence", "" + codec.equals("zstd")));
            out.add(START, "alone", "x").batch();
            for (int i = 0; i < 20; i++) out.add(START - i * 1000, "k" + i, json(i));
            out.batch();
        }
    }

    static void rebuilt() throws Exception {
        for (String target : new String[] {"lz4", "uncompressed"}) {
            String topic = "rebuilt-" + (target.equals("lz4") ? "lz4" : "none");
            create(topic, "compression.type", target);
            for (String codec : CODECS) {
                Writer out = new Writer(topic, codec, Map.of("enable.idempotence", "" + codec.equals("gzip")));
                for (int i = 0; i < 12; i++) out.add(START + i, "k" + i, json(i)).add("sent-as", bytes(codec));
                out.batch();
                out.add(START, (byte[]) null, null).batch();
            }
        }
    }

    static void rolled() throws Exception {
        create("rolled", "index.interval.bytes", "300", "segment.ms", "" + 5 * MINUTE);
        Writer a = new Writer("rolled", "none", Map.of());
        Writer b = new Writer("rolled", "gzip", Map.of("enable.idempotence", "false"));
        for (int segment = 0; segment < 3; segment++) {
            long time = START + segment * 10 * MINUTE;
            for (int i = 0; i < 12; i++) {
                // the fourth batch is ahead of those after it, so .timeindex has fewer entries
                // than .index
                (i % 3 == 2 ? b : a).some(time + (i == 3 ? 7_000 : i * 1000), "segment " + segment, 1 + i % 4).batch();
            }
        }
    }

    static void leaderEpoch(boolean first) throws Exception {
        if (first) create("leader-epoch");
        Writer out = new Writer("leader-epoch", "none", Map.of());
        out.some(System.currentTimeMillis(), "x", 2).batch();
        out.some(System.currentTimeMillis(), "y", 3).batch();
    }

    /**
     * A step in time of more than five minutes rolls the segment (segment.ms), so the cleaner may
     * take what lies before it. Three rounds: keys written over; tombstones whose time has come;
     * tombstones that wait for theirs.
     */
    static void compacted() throws Exception {
        String topic = "compacted";
        createCompacted(topic);
        Writer plain = new Writer(topic, "none", Map.of("enable.idempotence", "false"));
        Writer a = new Writer(topic, "lz4", Map.of());
        Writer b = new Writer(topic, "none", Map.of());
        keys(plain, START, 0, 20, "1");
        keys(a, START + 1000, 0, 10, "2");
        keys(b, START + 2000, 10, 15, "2");
        keys(plain, START + 3000, 0, 3, null);
        keys(plain, START + 4000, 20, 25, "1");
        keys(a, START + 5000, 5, 10, "3"); // a's last batch: emptied in the next round, kept for its sequence numbers
        awaitCleaned(topic, plain.add(START + 10 * MINUTE, "round", "1").batch());
        Thread.sleep(1000); // delete.retention.ms is 100

        keys(plain, START + 11 * MINUTE, 5, 10, "4");
        keys(plain, START + 11 * MINUTE, 20, 22, "2");
        awaitCleaned(topic, plain.add(START + 20 * MINUTE, "round", "2").batch());

        keepTombstones(topic);
        keys(b, START + 21 * MINUTE, 10, 13, "3");
        keys(plain, START + 22 * MINUTE, 3, 4, null);
        keys(plain, START + 22 * MINUTE, 30, 40, "1");
        keys(b, START + 23 * MINUTE, 13, 15, null);
        Writer zstd = new Writer(topic, "zstd", Map.of("enable.idempotence", "false"));
        for (int k = 20; k < 29; k++) zstd.add(START + 24 * MINUTE, "k" + k, k % 2 == 0 ? null : json(k));
        zstd.batch();
        keys(plain, START + 25 * MINUTE, 31, 40, "2");
        awaitCleaned(topic, plain.add(START + 35 * MINUTE, "round", "3").batch());

        keys(plain, START + 36 * MINUTE, 0, 5, "9"); // the dirty end, still with both versions of a key
        keys(plain, START + 37 * MINUTE, 0, 5, "10");
    }

    static void compactedTransactional() throws Exception {
        String topic = "compacted-transactional";
        long now = System.currentTimeMillis(); // markers carry the broker's clock, and would roll segments too
        createCompacted(topic);
        Writer a = transactional(topic, "compacting", "none");
        Writer b = transactional(topic, "compacting-too", "zstd");
        Writer plain = new Writer(topic, "none", Map.of("enable.idempotence", "false"));
        a.begin();
        keys(a, now, 0, 6, "1");
        a.commit();
        b.begin();
        keys(b, now + 1000, 0, 4, "aborted");
        b.abort();
        awaitCleaned(topic, plain.add(now + 10 * MINUTE, "round", "1").batch());
        Thread.sleep(1000);
        keys(plain, now + 11 * MINUTE, 0, 3, "2");
        awaitCleaned(topic, plain.add(now + 20 * MINUTE, "round", "2").batch());
        keepTombstones(topic);
        a.begin();
        keys(a, now + 21 * MINUTE, 3, 6, "3");
        a.commit();
        b.begin();
        keys(b, now + 22 * MINUTE, 0, 6, "aborted again");
        b.abort();
        b.begin();
        keys(b, now + 23 * MINUTE, 6, 9, "1");
        b.commit();
        awaitCleaned(topic, plain.add(now + 35 * MINUTE, "round", "3").batch());
        // a marker gets its delete horizon a round after the last records of its transaction are
        // gone
        keys(plain, now + 36 * MINUTE, 0, 2, "4");
        awaitCleaned(topic, plain.add(now + 45 * MINUTE, "round", "4").batch());
    }

    /** Copied while the broker has them open: indexes, and a log, at their preallocated sizes with zeros at the end. */
    static void live() throws Exception {
        create("live", "index.interval.bytes", "100", "segment.index.bytes", "4096");
        create("live-preallocated", "preallocate", "true", "internal.segment.bytes", "8192",
            "index.interval.bytes", "100", "segment.index.bytes", "1024");
        for (String topic : new String[] {"live", "live-preallocated"}) {
            Writer out = new Writer(topic, "none", Map.of());
            for (int i = 0; i < 8; i++) out.some(START + i * 1000, "live", 1 + i % 3).batch();
        }
    }

    // ---- the cleaner

    static void createCompacted(String topic) throws Exception {
        create(topic, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "100",
            "segment.ms", "" + 5 * MINUTE, "internal.segment.bytes", "3000", "file.delete.delay.ms", "0",
            "index.interval.bytes", "300");
    }

    static void keepTombstones(String topic) throws Exception {
        AlterConfigOp month = new AlterConfigOp(new ConfigEntry("delete.retention.ms", "2592000000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), List.of(month))).all().get();
        Thread.sleep(1000); // until the log has it
    }

    /** The cleaner's checkpoint has reached this offset, the first of the active segment. */
    static void awaitCleaned(String topic, long offset) throws Exception {
        Path checkpoint = dataDir.resolve("cleaner-offset-checkpoint");
        for (long end = System.currentTimeMillis() + 60_000; System.currentTimeMillis() < end; Thread.sleep(50)) {
            if (!Files.exists(checkpoint)) continue;
            for (String line : Files.readAllLines(checkpoint)) {
                String[] entry = line.split(" ");
                if (entry.length == 3 && entry[0].equals(topic) && Long.parseLong(entry[2]) >= offset) return;
            }
        }
        throw new IllegalStateException("the cleaner did not reach offset " + offset + " of " + topic + " within a minute");
    }

    // ---- small things

    static void create(String topic, String... config) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("retention.ms", "-1");
        for (int i = 0; i < config.length; i += 2) settings.setProperty(config[i], config[i + 1]);
        Map<String, String> map = new java.util.HashMap<>();
        settings.stringPropertyNames().forEach(name -> map.put(name, settings.getProperty(name)));
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(map))).all().get();
    }

    static void keys(Writer out, long time, int from, int to, String version) throws Exception {
        for (int k = from; k < to; k++) {
            out.add(time + k, "k" + k, version == null ? null : "version " + version + " of key " + k + ": " + json(k));
        }
        out.batch();
    }

    static Writer transactional(String topic, String id, String codec) {
        Writer writer = new Writer(topic, codec, Map.of("transactional.id", id, "transaction.timeout.ms", "900000"));
        writer.producer.initTransactions();
        return writer;
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] noise(int length) {
        byte[] noise = new byte[length];
        random.nextBytes(noise);
        return noise;
    }

    static String json(int i) {
        return "{\"order\":" + (1000 + i) + ",\"status\":\"" + (i % 4 == 0 ? "paid" : "shipped") + "\",\"items\":[" + i % 7 + "," + i % 5
            + "],\"note\":\"" + Integer.toHexString(random.nextInt()) + "\"}";
    }

    /** One producer, one partition. */
    static class Writer {
        final String topic;
        final KafkaProducer<byte[], byte[]> producer;
        final List<ProducerRecord<byte[], byte[]>> waiting = new ArrayList<>();

        Writer(String topic, String codec, Map<String, String> more) {
            this.topic = topic;
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("acks", "all");
            config.put("compression.type", codec);
            config.put("batch.size", "1000000");
            config.put("linger.ms", "60000");
            config.putAll(more);
            producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        }

        Writer add(long time, byte[] key, byte[] value) {
            waiting.add(new ProducerRecord<>(topic, 0, time, key, value));
            return this;
        }

        Writer add(long time, String key, String value) {
            return add(time, bytes(key), bytes(value));
        }

        /** A header for the last record. */
        Writer add(String key, byte[] value) {
            Headers headers = waiting.get(waiting.size() - 1).headers();
            headers.add(key, value);
            return this;
        }

        Writer some(long time, String what, int count) {
            for (int i = 0; i < count; i++) add(time + i, what + " " + i, json(i));
            return this;
        }

        /** Sends what waits, as one batch; the offset of its last record. */
        long batch() throws Exception {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : waiting) sent.add(producer.send(record));
            waiting.clear();
            producer.flush();
            for (Future<RecordMetadata> future : sent) future.get();
            return sent.get(sent.size() - 1).get().offset();
        }

        Writer begin() {
            producer.beginTransaction();
            return this;
        }

        void commit() {
            producer.commitTransaction();
        }

        void abort() {
            producer.abortTransaction();
        }
    }
}
