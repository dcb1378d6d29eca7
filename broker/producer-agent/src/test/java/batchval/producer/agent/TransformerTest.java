package batchval.producer.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.MethodNode;

class TransformerTest {
    private static final String SENDER = "org/apache/kafka/clients/producer/internals/Sender";

    /** A class loader of one release's jar, in which one class may be another one. */
    private static final class Kafka extends URLClassLoader {
        private final Map<String, byte[]> changed;

        Kafka(String version, Map<String, byte[]> changed, boolean seesAgent) throws IOException {
            super(new URL[] {
                Path.of("target/kafka/kafka-clients-" + version + ".jar").toUri().toURL()},
                seesAgent ? TransformerTest.class.getClassLoader() : null);
            this.changed = changed;
        }

        @Override
        public URL getResource(String name) {
            return findResource(name);
        }

        @Override
        public InputStream getResourceAsStream(String name) {
            byte[] bytes = changed.get(name.replace(".class", ""));
            try {
                return bytes == null ? findResource(name).openStream()
                    : new ByteArrayInputStream(bytes);
            } catch (IOException failure) {
                throw new IllegalStateException(failure);
            }
        }

        byte[] bytes(String name) throws IOException {
            try (InputStream in = getResourceAsStream(name + ".class")) {
                return in.readAllBytes();
            }
        }

        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    private static String records(String version) {
        return Patches.PACKAGES.get(version.startsWith("4.4") ? 0 : 1);
    }

    private static List<byte[]> transformed(Kafka kafka, String version) throws IOException {
        Transformer transformer = new Transformer("test");
        List<byte[]> all = new ArrayList<>();
        for (String name : Patches.of(records(version)).keySet())
            all.add(transformer.transform(kafka, name, null, null, kafka.bytes(name)));
        return all;
    }

    @ParameterizedTest
    @ValueSource(strings = {"4.4.0", "4.1.2", "3.9.2"})
    void theReleasesMatchAndTheVerifierTakesThem(String version) throws Exception {
        Kafka kafka = new Kafka(version, Map.of(), true);
        for (byte[] bytes : transformed(kafka, version)) {
            assertNotNull(bytes);
            Class<?> patched = kafka.define(bytes);
            assertEquals(1, Stream.of(patched.getInterfaces())
                .filter(type -> type.getName().startsWith("batchval.")).count()
                + (patched.getName().endsWith("Sender") ? 1 : 0));
        }
    }

    static Stream<Arguments> mutations() {
        return Stream.of("4.4.0", "3.9.2").flatMap(version -> {
            String builder = Patches.builder(records(version));
            String partition =
                "org/apache/kafka/common/message/ProduceRequestData$PartitionProduceData";
            String batch = "org/apache/kafka/clients/producer/internals/ProducerBatch";
            return Stream.of(
                Arguments.of(version, builder, "appendDefaultRecord"),
                Arguments.of(version, builder, "recordWritten"),
                Arguments.of(version, builder, "writeDefaultBatchHeader"),
                Arguments.of(version, builder, "estimatedBytesWritten"),
                Arguments.of(version, builder, "close"),
                Arguments.of(version, records(version) + "MemoryRecords", "buffer"),
                Arguments.of(version, batch, "<init>"),
                Arguments.of(version, SENDER, "completeBatch"),
                Arguments.of(version, partition, "addSize"));
        });
    }

    @ParameterizedTest
    @MethodSource("mutations")
    void oneClassThatDiffersLeavesAllAsTheyAre(String version, String name, String method)
        throws Exception {
        byte[] original = new Kafka(version, Map.of(), true).bytes(name);
        ClassNode node = new ClassNode();
        new ClassReader(original).accept(node, 0);
        for (MethodNode one : node.methods)
            if (one.name.equals(method))
                one.name = method.equals("<init>") ? "created" : method + "Now";
        ClassWriter writer = new ClassWriter(0);
        node.accept(writer);
        Kafka kafka = new Kafka(version, Map.of(name, writer.toByteArray()), true);
        for (byte[] bytes : transformed(kafka, version))
            assertNull(bytes);
        String status = new Counters().getStatus();
        assertTrue(status.startsWith("inactive: " + name.replace('/', '.') + ": "), status);
    }

    @Test
    void aLoaderThatDoesNotSeeTheAgentIsLeftAlone() throws Exception {
        for (byte[] bytes : transformed(new Kafka("4.4.0", Map.of(), false), "4.4.0"))
            assertNull(bytes);
        assertTrue(new Counters().getStatus().contains("does not see the agent's classes"));
    }

    @Test
    void otherClassesAreNotLookedAt() throws Exception {
        Transformer transformer = new Transformer("test");
        Kafka kafka = new Kafka("4.4.0", Map.of(), true);
        String other = "org/apache/kafka/clients/producer/KafkaProducer";
        assertNull(transformer.transform(kafka, other, null, null, kafka.bytes(other)));
        assertNull(transformer.transform(null, SENDER, null, null, kafka.bytes(SENDER)));
    }

    @Test
    void aPatchedClassIsNotPatchedAgain() throws Exception {
        Kafka kafka = new Kafka("4.4.0", Map.of(), true);
        KafkaClass records = new KafkaClass(kafka.bytes(records("4.4.0") + "MemoryRecords"));
        Patches.Patch patch = Patches.of(records("4.4.0")).get(records.name());
        patch.apply(records);
        KafkaClass again = new KafkaClass(records.bytes());
        assertThrows(Mismatch.class, () -> patch.apply(again));
    }
}
