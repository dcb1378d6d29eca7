import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces to every partition of a topic over TLS and reads it back; prints the leaders' addresses,
 * and then "N of COUNT".
 *
 * java -cp CLASSPATH Named.java BOOTSTRAP TOPIC COUNT CA
 */
public class Named {
    static final long TIMEOUT_NS = 40_000_000_000L;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("security.protocol", "SSL");
        config.put("ssl.truststore.type", "PEM");
        config.put("ssl.truststore.location", args[3]);
        config.put("auto.offset.reset", "earliest");
        List<TopicPartition> partitions = produce(config, args[1], count);
        System.out.println(read(config, partitions, count) + " of " + count);
        Runtime.getRuntime().halt(0);
    }

    static List<TopicPartition> produce(Map<String, Object> config, String topic, int count) {
        List<TopicPartition> partitions = new ArrayList<>();
        var leaders = new TreeSet<String>();
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(config, serializer, serializer)) {
            for (PartitionInfo one : producer.partitionsFor(topic)) {
                partitions.add(new TopicPartition(topic, one.partition()));
                leaders.add(one.leader().host() + ":" + one.leader().port());
            }
            for (int n = 0; n < count; n++) {
                byte[] value = ("java " + n).getBytes();
                producer.send(new ProducerRecord<>(topic, n % partitions.size(), null, value));
            }
        }
        leaders.forEach(System.out::println);
        return partitions;
    }

    static int read(Map<String, Object> config, List<TopicPartition> partitions, int count) {
        int read = 0;
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, deserializer, deserializer)) {
            consumer.assign(partitions);
            long until = System.nanoTime() + TIMEOUT_NS;
            while (read < count && System.nanoTime() < until) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    read += new String(one.value()).startsWith("java ") ? 1 : 0;
                }
            }
        }
        return read;
    }
}
