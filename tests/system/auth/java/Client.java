import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java clients see of a cluster that asks who they are, a line each: access rules, groups
 * of KIP-848, share groups. A line holds no address, no time and no full name, so that a run
 * through the gate and a direct one can be compared.
 *
 * java -cp CLASSPATH Client.java BOOTSTRAP PREFIX PASSWORD-OF-ANN PASSWORD-OF-BOB
 */
public class Client {
    static String bootstrap;
    static String prefix;
    static final Map<String, String> PASSWORDS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        PASSWORDS.put("ann", args[2]);
        PASSWORDS.put("bob", args[3]);
        try (Admin admin = Admin.create(as("ann", Map.of()))) {
            admin.createTopics(List.of(new NewTopic(prefix + "guarded", 1, (short) 1),
                    new NewTopic(prefix + "groups", 4, (short) 1), new NewTopic(prefix + "shared", 2, (short) 1),
                    new NewTopic(prefix + "small", 1, (short) 1).configs(Map.of("max.message.bytes", "1000")))).all().get();
            until("topics", () -> names(admin).contains(prefix + "small"));
            rules(admin);
            groups(admin);
            shares(admin);
        }
        Runtime.getRuntime().halt(0);
    }

    static void say(String what, Object result) {
        System.out.println(what + ": " + String.valueOf(result).replace(prefix, "*").replace('\n', ' '));
    }

    static Map<String, Object> as(String user, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
                "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-512",
                "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                        + user + "\" password=\"" + PASSWORDS.get(user) + "\";"));
        config.putAll(more);
        return config;
    }

    static Set<String> names(Admin admin) {
        return result(() -> admin.listTopics().names().get());
    }

    interface Throwing<T> {
        T get() throws Exception;
    }

    static <T> T result(Throwing<T> what) {
        try {
            return what.get();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static String failure(Throwing<?> what) {
        try {
            what.get();
            return "goes";
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            return cause.getClass().getSimpleName();
        }
    }

    /** Rules take a moment until every part of the broker knows them: the last answer is the one that counts. */
    static void until(String what, Supplier<Boolean> holds) throws Exception {
        long end = System.currentTimeMillis() + 20_000;
        while (!holds.get()) {
            if (System.currentTimeMillis() > end) {
                say(what, "did not come to pass");
                return;
            }
            Thread.sleep(20);
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String user) {
        return new KafkaProducer<>(as(user, Map.of("max.block.ms", 5000, "linger.ms", 0)), new ByteArraySerializer(),
                new ByteArraySerializer());
    }

    static String sent(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value) {
        return failure(() -> producer.send(new ProducerRecord<>(prefix + topic, 0, null, value)).get());
    }

    // ---- access rules

    static void rules(Admin admin) throws Exception {
        var topic = new ResourcePattern(ResourceType.TOPIC, prefix + "guarded", PatternType.LITERAL);
        var group = new ResourcePattern(ResourceType.GROUP, prefix + "of-bob", PatternType.PREFIXED);
        List<AclBinding> wanted = new ArrayList<>();
        for (AclOperation operation : List.of(AclOperation.WRITE, AclOperation.READ)) {
            wanted.add(new AclBinding(topic, allowed(operation)));
        }
        wanted.add(new AclBinding(group, allowed(AclOperation.READ)));
        try (var bob = producer("bob"); Admin his = Admin.create(as("bob", Map.of()))) {
            say("bob writes without a rule", sent(bob, "guarded", new byte[10]));
            // which of the two that he may not he meets first is a race
            say("bob reads without a rule", read("guarded", "of-bob").replaceFirst("Group|Topic", ""));
            say("bob asks for rules", failure(() -> his.describeAcls(AclBindingFilter.ANY).values().get()));
            say("bob makes rules", failure(() -> his.createAcls(wanted).all().get()));
            say("made", failure(() -> admin.createAcls(wanted).all().get()));
            until("bob may write", () -> sent(bob, "guarded", new byte[10]).equals("goes"));
            until("bob may read", () -> read("guarded", "of-bob").startsWith("records"));
            say("rules", described(admin));
            say("bob writes", sent(bob, "guarded", new byte[10]));
            say("bob reads", read("guarded", "of-bob"));
            say("bob writes elsewhere", sent(bob, "small", new byte[10]));
            say("bob writes elsewhere what is too large", sent(bob, "small", new byte[5000]));
            say("bob reads in another group", read("guarded", "of-others"));
            var his_ = new AclBindingFilter(new ResourcePatternFilter(ResourceType.ANY, null, PatternType.ANY),
                    new AccessControlEntryFilter("User:bob", null, AclOperation.ANY, AclPermissionType.ANY));
            var mine = described(admin).size();
            int gone = 0;
            for (AclBinding binding : admin.describeAcls(his_).values().get()) {
                if (binding.pattern().name().startsWith(prefix)) {
                    gone += admin.deleteAcls(List.of(binding.toFilter())).all().get().size();
                }
            }
            say("taken back", gone + " of " + mine);
            until("bob may write no more", () -> !sent(bob, "guarded", new byte[10]).equals("goes"));
            say("bob writes", sent(bob, "guarded", new byte[10]));
            say("rules", described(admin));
        }
        try (var ann = producer("ann")) {
            say("ann writes what is too large", sent(ann, "small", new byte[5000]));
        }
    }

    static AccessControlEntry allowed(AclOperation operation) {
        return new AccessControlEntry("User:bob", "*", operation, AclPermissionType.ALLOW);
    }

    static Set<String> described(Admin admin) throws Exception {
        Set<String> found = new TreeSet<>();
        for (AclBinding binding : admin.describeAcls(AclBindingFilter.ANY).values().get()) {
            if (binding.pattern().name().startsWith(prefix)) {
                found.add(binding.toString());
            }
        }
        return found;
    }

    static KafkaConsumer<byte[], byte[]> consumer(String user, String group, Map<String, Object> more) {
        var config = as(user, Map.of("group.id", prefix + group, "group.protocol", "consumer", "auto.offset.reset",
                "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100));
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static String read(String topic, String group) {
        try (var consumer = consumer("bob", group, Map.of())) {
            consumer.subscribe(List.of(prefix + topic));
            long end = System.currentTimeMillis() + 10_000;
            while (System.currentTimeMillis() < end) {
                if (!consumer.poll(Duration.ofMillis(50)).isEmpty()) {
                    return "records";
                }
            }
            return "nothing";
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    // ---- KIP-848

    static void fill(String topic, int partitions, int count) throws Exception {
        try (var ann = producer("ann")) {
            for (int i = 0; i < count; i++) {
                ann.send(new ProducerRecord<>(prefix + topic, i % partitions, null, ("value " + i).getBytes()));
            }
            ann.flush();
        }
    }

    static Map<String, Integer> seen = new TreeMap<>();

    static void polled(Collection<KafkaConsumer<byte[], byte[]>> members) {
        for (var member : members) {
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(20))) {
                seen.merge(new String(record.value()), 1, Integer::sum);
            }
            member.commitSync();
        }
    }

    static List<Integer> shares(List<KafkaConsumer<byte[], byte[]>> members) {
        return members.stream().map(member -> member.assignment().size()).sorted().toList();
    }

    static void groups(Admin admin) throws Exception {
        fill("groups", 4, 80);
        List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();
        for (List<Integer> wanted : List.of(List.of(4), List.of(2, 2), List.of(1, 1, 1, 1))) {
            while (members.size() < wanted.size()) {
                var member = consumer("ann", "group", Map.of());
                member.subscribe(List.of(prefix + "groups"));
                members.add(member);
            }
            until("shares " + wanted, () -> {
                polled(members);
                return shares(members).equals(wanted);
            });
            say("members " + members.size(), shares(members));
        }
        members.remove(0).close();
        members.remove(0).close();
        until("two are left", () -> {
            polled(members);
            return shares(members).equals(List.of(2, 2));
        });
        say("two are left", shares(members));
        until("all seen", () -> {
            polled(members);
            return seen.size() == 80;
        });
        say("seen", seen.size() + " values, most often " + seen.values().stream().max(Integer::compare).orElse(0));
        var group = admin.describeConsumerGroups(List.of(prefix + "group")).all().get().get(prefix + "group");
        say("group", group.type() + " " + group.groupState() + " " + group.members().size());
        long sum = 0;
        for (var offset : admin.listConsumerGroupOffsets(prefix + "group").partitionsToOffsetAndMetadata().get().values()) {
            sum += offset.offset();
        }
        say("committed", sum);
        members.forEach(KafkaConsumer::close);
    }

    // ---- share groups (KIP-932)

    static KafkaShareConsumer<byte[], byte[]> sharer(String user) {
        return new KafkaShareConsumer<>(as(user, Map.of("group.id", prefix + "shares", "share.acknowledgement.mode",
                "explicit", "fetch.max.wait.ms", 100)), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void shares(Admin admin) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, prefix + "shares");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        fill("shared", 2, 60);
        Map<String, Integer> accepted = new TreeMap<>();
        Map<Integer, Integer> deliveries = new TreeMap<>();
        Set<String> rejected = new TreeSet<>();
        try (var one = sharer("ann"); var two = sharer("ann")) {
            var both = List.of(one, two);
            both.forEach(member -> member.subscribe(List.of(prefix + "shared")));
            Map<String, String> commits = new TreeMap<>();
            until("all shared", () -> {
                for (var member : both) {
                    for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(100))) {
                        String value = new String(record.value());
                        int number = Integer.parseInt(value.substring(6));
                        int delivery = record.deliveryCount().orElse((short) 0);
                        if (number % 5 == 0 && delivery == 1) {
                            member.acknowledge(record, AcknowledgeType.RELEASE);
                        } else if (number % 7 == 1) {
                            member.acknowledge(record, AcknowledgeType.REJECT);
                            rejected.add(value);
                        } else {
                            member.acknowledge(record, AcknowledgeType.ACCEPT);
                            accepted.merge(value, 1, Integer::sum);
                            deliveries.merge(delivery, 1, Integer::sum);
                        }
                    }
                    for (Optional<?> failed : member.commitSync().values()) {
                        commits.merge(failed.map(Object::toString).orElse("goes"), "", String::concat);
                    }
                }
                return accepted.size() + rejected.size() == 60;
            });
            say("accepted", accepted.size() + " at most " + accepted.values().stream().max(Integer::compare).orElse(0));
            say("rejected", rejected);
            say("by delivery", deliveries);
            say("acknowledgements", commits.keySet());
            var group = admin.describeShareGroups(List.of(prefix + "shares")).all().get().get(prefix + "shares");
            say("share group", group.groupState() + " " + group.members().size());
        }
        try (var stranger = sharer("bob")) {
            stranger.subscribe(List.of(prefix + "shared"));
            String refused = failure(() -> {
                for (int i = 0; i < 50; i++) {
                    stranger.poll(Duration.ofMillis(100));
                }
                return null;
            });
            say("bob shares", refused.replaceFirst("Group|Topic", ""));
        }
    }
}
