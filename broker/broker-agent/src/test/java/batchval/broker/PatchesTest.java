package batchval.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.FieldNode;
import org.objectweb.asm.tree.InsnNode;
import org.objectweb.asm.tree.MethodNode;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.function.Consumer;

/** The classes of Kafka 4.4.0, as they are and changed. */
class PatchesTest {
    private static final String COMMON = "org/apache/kafka/common/";
    private static final String RECORDS = COMMON + "record/internal/";
    private static final String VALIDATOR = Layout.LOG_VALIDATOR;

    private static byte[] stock(String name) {
        try (InputStream in = ClassLoader.getSystemResourceAsStream(name + ".class")) {
            return in == null ? null : in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static byte[] changed(byte[] bytes, Consumer<ClassNode> change) {
        ClassNode node = new ClassNode();
        new ClassReader(bytes).accept(node, 0);
        change.accept(node);
        ClassWriter writer = new ClassWriter(0);
        node.accept(writer);
        return writer.toByteArray();
    }

    private static MethodNode method(ClassNode node, String name) {
        return node.methods.stream().filter(m -> m.name.equals(name)).findFirst().orElseThrow();
    }

    private static FieldNode field(ClassNode node, String name) {
        return node.fields.stream().filter(f -> f.name.equals(name)).findFirst().orElseThrow();
    }

    record Case(String type, Consumer<ClassNode> change, String reason) {
        @Override
        public String toString() {
            return type.substring(type.lastIndexOf('/') + 1) + ": " + reason;
        }
    }

    static List<Case> otherShapes() {
        return List.of(
            new Case(VALIDATOR, n -> method(n, "validateRecord").instructions
                .insert(new InsnNode(Opcodes.NOP)), "its methods have the digest"),
            new Case(VALIDATOR, n -> method(n, "validateBatch").name = "validateAll",
                "its methods have the digest"),
            new Case(VALIDATOR, n -> n.fields.add(new FieldNode(Opcodes.ACC_PRIVATE, "schemas", "Z",
                null, null)), "fields are"),
            new Case(VALIDATOR, n -> field(n, "maxRecordBodySize").desc = "J",
                "no field maxRecordBodySize I"),
            new Case(RECORDS + "MemoryRecords", n -> method(n, "batches").name = "all",
                "no method batches()Ljava/lang/Iterable;"),
            new Case(RECORDS + "MemoryRecords", n -> n.fields.add(new FieldNode(0,
                "batchval$carried", "I", null, null)), "field batchval$carried exists"),
            new Case(RECORDS + "DefaultRecordBatch",
                n -> method(n, "recordInputStream").desc = "()Ljava/io/InputStream;",
                "no method recordInputStream"),
            new Case(RECORDS + "MutableRecordBatch",
                n -> method(n, "setLastOffset").desc = "(I)V", "no method setLastOffset(J)V"),
            new Case(COMMON + "message/ProduceRequestData$PartitionProduceData",
                n -> field(n, "records").name = "batches", "no field records"),
            new Case(COMMON + "requests/RequestContext", n -> field(n, "principal").name = "user",
                "no field principal"),
            new Case(COMMON + "requests/RequestContext",
                n -> method(n, "parseRequest").name = "parse", "no method parseRequest"));
    }

    @Test
    void theStockClassesArePatched() throws ShapeMismatch {
        Patches patches = Patches.of(PatchesTest::stock);
        for (String name : List.of(VALIDATOR, RECORDS + "MemoryRecords",
            RECORDS + "DefaultRecordBatch", COMMON + "requests/RequestContext",
            COMMON + "message/ProduceRequestData$PartitionProduceData"))
            assertTrue(patches.patch(name, stock(name)).length > stock(name).length, name);
    }

    @ParameterizedTest
    @MethodSource("otherShapes")
    void anotherShapeIsNamedAndPatchesNothing(Case one) {
        String message = assertThrows(ShapeMismatch.class, () -> Patches.of(name ->
            name.equals(one.type) ? changed(stock(name), one.change) : stock(name))).getMessage();
        assertTrue(message.startsWith(one.type.replace('/', '.') + ": "), message);
        assertTrue(message.contains(one.reason), message);
    }

    @Test
    void aClassThatIsNotThereIsNamed() {
        String gone = COMMON + "requests/RequestAndSize";
        String message = assertThrows(ShapeMismatch.class,
            () -> Patches.of(name -> name.equals(gone) ? null : stock(name))).getMessage();
        assertEquals(gone.replace('/', '.') + ": not found on the class path", message);
    }

    @Test
    void aPatchedClassIsNotPatchedAgain() throws ShapeMismatch {
        Patches patches = Patches.of(PatchesTest::stock);
        String name = RECORDS + "MemoryRecords";
        byte[] once = patches.patch(name, stock(name));
        assertThrows(ShapeMismatch.class, () -> patches.patch(name, once));
    }
}
