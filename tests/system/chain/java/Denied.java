import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What Java's clients make of a gate that denies APIs: "what: the exception's class, or done".
 *
 * Denied BOOTSTRAP OTHER TOPIC: OTHER denies Produce and Fetch; the topic is there.
 */
public final class Denied {
    private Denied() {
    }

    public static void main(String[] args) throws Exception {
        String topic = args[2];
        try (Admin admin = Admin.create(with(args[0]))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry entry = new ConfigEntry("retention.ms", "1");
            AlterConfigOp op = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
            AclBinding acl = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
                new AccessControlEntry("User:bob", "*", AclOperation.READ,
                    AclPermissionType.ALLOW));
            NewTopic made = new NewTopic("new", 1, (short) 1);
            say("createTopics", () -> admin.createTopics(List.of(made)).all().get());
            say("deleteTopics", () -> admin.deleteTopics(List.of(topic)).all().get());
            say("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(
                Map.of(resource, (Collection<AlterConfigOp>) List.of(op))).all().get());
            say("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
            say("listConsumerGroups", () -> admin.listConsumerGroups().all().get());
            say("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("g")).all().get());
            say("describeTopics", () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
            say("describeConfigs", () -> admin.describeConfigs(List.of(resource)).all().get());
        }
        StringSerializer writes = new StringSerializer();
        for (String idempotent : List.of("true", "false")) {
            Properties properties = with(args[1]);
            properties.put("enable.idempotence", idempotent);
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(properties, writes, writes)) {
                ProducerRecord<String, String> one = new ProducerRecord<>(topic, "v");
                say("send " + idempotent, () -> producer.send(one).get());
            }
        }
        StringDeserializer reads = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(with(args[1]), reads, reads)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            say("poll", () -> consumer.poll(Duration.ofSeconds(10)));
        }
    }

    private static Properties with(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", "10000");
        properties.put("default.api.timeout.ms", "20000");
        properties.put("max.block.ms", "20000");
        return properties;
    }

    private static void say(String what, Callable<?> run) {
        String came = "done";
        try {
            run.call();
        } catch (ExecutionException e) {
            came = e.getCause().getClass().getSimpleName() + " " + e.getCause().getMessage();
        } catch (Exception e) {
            came = e.getClass().getSimpleName() + " " + e.getMessage();
        }
        System.out.println(what + ": " + came);
    }
}
