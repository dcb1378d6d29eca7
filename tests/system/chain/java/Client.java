import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java clients see, a line each. A line holds no address, no time and no topic's full
 * name, so that a run through the gate and a direct one can be compared.
 *
 * java -cp CLASSPATH Client.java BOOTSTRAP PREFIX PORT,PORT...
 */
public class Client {
    static String bootstrap;
    static String prefix;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        List<String> ports = Arrays.asList(args[2].split(","));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                    topic("codecs", Map.of()), topic("tx", Map.of()), topic("out", Map.of()), topic("after", Map.of()),
                    topic("last", Map.of()),
                    topic("small", Map.of("max.message.bytes", "1000")),
                    topic("compact", Map.of("cleanup.policy", "compact")),
                    topic("fresh", Map.of("message.timestamp.before.max.ms", "3600000",
                            "message.timestamp.after.max.ms", "3600000")))).all().get();
            cluster(admin, ports);
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            codec(codec);
        }
        say("codecs read", read("codecs", "read_uncommitted", 100));
        transactions();
        groups();
        errors();
        after();
        Runtime.getRuntime().halt(0);
    }

    static NewTopic topic(String name, Map<String, String> config) {
        return new NewTopic(prefix + name, 1, (short) 1).configs(config);
    }

    static void say(String what, Object result) {
        System.out.println(what + ": " + String.valueOf(result).replace(prefix, "*").replace('\n', ' '));
    }

    // ---- admin

    static void cluster(Admin admin, List<String> ports) throws Exception {
        int strangers = 0;
        List<Node> nodes = new ArrayList<>(admin.describeCluster().nodes().get());
        nodes.add(admin.describeCluster().controller().get());
        while (!admin.listTopics().names().get().contains(prefix + "fresh")) {
            Thread.sleep(20); // it is made, and its broker may not have heard of it yet
        }
        for (var described : admin.describeTopics(List.of(prefix + "codecs")).allTopicNames().get().values()) {
            described.partitions().forEach(partition -> nodes.add(partition.leader()));
        }
        for (Node node : nodes) {
            if (!ports.contains(Integer.toString(node.port()))) {
                strangers++;
            }
        }
        say("nodes", nodes.size() + " of which strangers " + strangers);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, prefix + "tx");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("segment.ms", "7000000"), AlterConfigOp.OpType.SET)))).all().get();
        String set = null;
        for (int i = 0; i < 100 && !"7000000".equals(set); i++) {
            set = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("segment.ms").value();
        }
        say("altered", set);
    }

    // ---- produce, consume

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
                "max.request.size", 8 << 20, "buffer.memory", 16 << 20, "linger.ms", 1000, "delivery.timeout.ms", 40000));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void codec(String codec) throws Exception {
        try (var producer = producer(Map.of("compression.type", codec))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                var record = new ProducerRecord<>(prefix + "codecs", 0, bytes("k" + i), bytes((codec + i).repeat(30)));
                record.headers().add("codec", bytes(codec));
                sent.add(producer.send(record));
            }
            producer.flush();
            say("codec " + codec, sent.get(0).get().offset() + " to " + sent.get(19).get().offset());
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100));
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Offsets from the first on: an abort leaves no marker where the gate let nothing of the transaction through. */
    static String described(List<ConsumerRecord<byte[], byte[]>> records) {
        int hash = 0;
        for (var record : records) {
            hash = 31 * hash + Arrays.hashCode(record.key());
            hash = 31 * hash + Arrays.hashCode(record.value());
            for (var header : record.headers()) {
                hash = 31 * hash + Arrays.hashCode(header.value());
            }
            hash = 31 * hash + (int) (record.offset() - records.get(0).offset());
        }
        return records.size() + " records, hash " + hash;
    }

    static String read(String topic, String isolation, int count) {
        try (var consumer = consumer(Map.of("isolation.level", isolation))) {
            var partition = new TopicPartition(prefix + topic, 0);
            consumer.assign(List.of(partition));
            return described(poll(consumer, count, 10_000));
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count, int forMs) {
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        long until = System.currentTimeMillis() + forMs;
        while (read.size() < count && System.currentTimeMillis() < until) {
            consumer.poll(Duration.ofMillis(100)).forEach(read::add);
        }
        consumer.poll(Duration.ofMillis(100)).forEach(read::add);
        return read;
    }

    static void transactions() throws Exception {
        try (var producer = producer(Map.of("transactional.id", prefix + "id", "linger.ms", 0))) {
            producer.initTransactions();
            for (int t = 0; t < 4; t++) {
                producer.beginTransaction();
                for (int i = 0; i < 5; i++) {
                    producer.send(new ProducerRecord<>(prefix + "tx", 0, bytes("k"), bytes(t + "/" + i)));
                }
                if (t % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        say("committed", read("tx", "read_committed", 10));
        List<String> values = new ArrayList<>();
        try (var consumer = consumer(Map.of("isolation.level", "read_uncommitted"))) {
            consumer.assign(List.of(new TopicPartition(prefix + "tx", 0)));
            poll(consumer, 20, 10_000).forEach(record -> values.add(new String(record.value())));
        }
        say("all", values);
        try (var producer = producer(Map.of("transactional.id", prefix + "bad", "linger.ms", 0))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + "after", 0, bytes("k"), bytes("goes with the other")));
            producer.flush();
            say("refused in a transaction", failure(producer.send(
                    new ProducerRecord<>(prefix + "compact", 0, null, bytes("keyless")))));
            String ended;
            try {
                producer.commitTransaction();
                ended = "committed";
            } catch (RuntimeException error) {
                ended = error instanceof KafkaException ? "fails" : error.toString(); // as a subclass, or wrapped: a race
                producer.abortTransaction();
            }
            say("its commit", ended);
            // nothing but what is refused: the cluster may not have heard that a transaction began
            producer.beginTransaction();
            say("refused alone", failure(producer.send(
                    new ProducerRecord<>(prefix + "compact", 0, null, bytes("keyless")))));
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(prefix + "last", 0, bytes("k"), bytes("the next one")));
            producer.commitTransaction();
            say("the next one", read("last", "read_committed", 1));
        }
        say("nothing of it", readCommitted("after"));
    }

    static String readCommitted(String topic) {
        try (var consumer = consumer(Map.of("isolation.level", "read_committed"))) {
            consumer.assign(List.of(new TopicPartition(prefix + topic, 0)));
            return described(poll(consumer, 1, 1500));
        }
    }

    // ---- groups

    static void groups() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, Object> group = Map.of("group.id", prefix + protocol, "group.protocol", protocol);
            try (var consumer = consumer(group)) {
                consumer.subscribe(List.of(prefix + "codecs"));
                var read = poll(consumer, 100, 20_000);
                consumer.commitSync(Map.of(new TopicPartition(prefix + "codecs", 0),
                        new org.apache.kafka.clients.consumer.OffsetAndMetadata(60)));
                say(protocol + " group", described(read));
            }
            try (var consumer = consumer(group)) {
                consumer.subscribe(List.of(prefix + "codecs"));
                var read = poll(consumer, 40, 20_000);
                say(protocol + " group goes on", read.isEmpty() ? "with nothing" : "at " + read.get(0).offset());
            }
        }
        // read, change, write: offsets and records in one transaction
        try (var consumer = consumer(Map.of("group.id", prefix + "rcw", "isolation.level", "read_committed"));
                var producer = producer(Map.of("transactional.id", prefix + "rcw", "linger.ms", 0))) {
            producer.initTransactions();
            consumer.subscribe(List.of(prefix + "tx"));
            var read = poll(consumer, 10, 20_000);
            producer.beginTransaction();
            for (var record : read) {
                producer.send(new ProducerRecord<>(prefix + "out", 0, record.key(), record.value()));
            }
            var partition = new TopicPartition(prefix + "tx", 0);
            producer.sendOffsetsToTransaction(Map.of(partition,
                    new org.apache.kafka.clients.consumer.OffsetAndMetadata(9)), consumer.groupMetadata());
            producer.commitTransaction();
            say("offset", consumer.committed(java.util.Set.of(partition)).get(partition).offset());
        }
        say("out", read("out", "read_committed", 10));
    }

    // ---- what is refused

    static String failure(Future<RecordMetadata> sent) throws Exception {
        try {
            return "accepted at " + sent.get().offset();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getName() + ": " + error.getCause().getMessage();
        }
    }

    static void errors() throws Exception {
        for (boolean idempotent : new boolean[] {true, false}) {
            String how = idempotent ? " (idempotent)" : "";
            for (String codec : List.of("none", "zstd")) {
                try (var producer = producer(Map.of("enable.idempotence", idempotent, "linger.ms", 0,
                        "compression.type", codec))) {
                    byte[] large = new byte[5000];
                    new java.util.Random(5).nextBytes(large);
                    say("too large " + codec + how, failure(producer.send(
                            new ProducerRecord<>(prefix + "small", 0, bytes("k"), large))));
                    say("no key " + codec + how, failure(producer.send(
                            new ProducerRecord<>(prefix + "compact", 0, null, bytes("v")))));
                    for (long hours : new long[] {-50, 50}) {
                        long at = System.currentTimeMillis() + hours * 3_600_000;
                        say(hours + " hours " + codec + how, timeless(failure(producer.send(
                                new ProducerRecord<>(prefix + "fresh", 0, at, bytes("k"), bytes("v"))))));
                    }
                }
            }
        }
    }

    static String timeless(String text) {
        return text.replaceAll("[0-9]{10,}", "…");
    }

    /** An idempotent producer goes on after a refusal: one of each three records is keyless, and all are waited for. */
    static void after() throws Exception {
        Map<String, Integer> results = new java.util.TreeMap<>();
        try (var producer = producer(Map.of("linger.ms", 0))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 30; i++) {
                byte[] key = i % 3 == 1 ? null : bytes("k" + i);
                Future<RecordMetadata> one = producer.send(new ProducerRecord<>(prefix + "compact", 0, key, bytes("v" + i)));
                producer.flush();
                sent.add(one);
            }
            for (Future<RecordMetadata> one : sent) {
                String result = failure(one);
                results.merge(result.startsWith("accepted") ? "accepted" : result, 1, Integer::sum);
            }
        }
        say("after refusals", results);
        say("what is there", read("compact", "read_uncommitted", 20));
    }
}
