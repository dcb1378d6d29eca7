import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Creates, describes and deletes a topic with the AdminClient of 0.11 and later.
 *
 * OldAdmin admin bootstrap=B topic=T seconds=S
 */
public final class OldAdmin {
    private OldAdmin() {
    }

    public static void main(String[] args) throws Exception {
        Report report = new Report(java.util.Arrays.copyOfRange(args, 1, args.length));
        Properties properties = report.client();
        properties.put("request.timeout.ms", "6000");
        String topic = report.argument("topic");
        Throwable failure = null;
        try (AdminClient admin = AdminClient.create(properties)) {
            NewTopic fresh = new NewTopic(topic, 2, (short) 1);
            fresh.configs(Collections.singletonMap("retention.ms", "86400000"));
            admin.createTopics(Collections.singleton(fresh)).all().get();
            report.put("created", admin.listTopics().names().get().contains(topic) ? 1 : 0);
            report.put("partitions", admin.describeTopics(Collections.singleton(topic)).all().get()
                    .get(topic).partitions().size());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config config = admin.describeConfigs(Collections.singleton(resource)).all().get()
                    .get(resource);
            report.put("retention", Long.parseLong(config.get("retention.ms").value()));
            admin.deleteTopics(Collections.singleton(topic)).all().get();
            report.put("deleted", admin.listTopics().names().get().contains(topic) ? 0 : 1);
        } catch (Throwable error) {
            failure = error;
        }
        report.print(failure);
    }
}
