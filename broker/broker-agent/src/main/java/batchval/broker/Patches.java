package batchval.broker;

import static org.objectweb.asm.Opcodes.ACC_FINAL;
import static org.objectweb.asm.Opcodes.ACC_PRIVATE;
import static org.objectweb.asm.Opcodes.ACC_PROTECTED;
import static org.objectweb.asm.Opcodes.ACC_PUBLIC;
import static org.objectweb.asm.Opcodes.ACC_SYNTHETIC;
import static org.objectweb.asm.Opcodes.ALOAD;
import static org.objectweb.asm.Opcodes.ARETURN;
import static org.objectweb.asm.Opcodes.ASTORE;
import static org.objectweb.asm.Opcodes.ATHROW;
import static org.objectweb.asm.Opcodes.CHECKCAST;
import static org.objectweb.asm.Opcodes.DUP;
import static org.objectweb.asm.Opcodes.F_APPEND;
import static org.objectweb.asm.Opcodes.F_SAME;
import static org.objectweb.asm.Opcodes.F_SAME1;
import static org.objectweb.asm.Opcodes.GETFIELD;
import static org.objectweb.asm.Opcodes.GETSTATIC;
import static org.objectweb.asm.Opcodes.I2L;
import static org.objectweb.asm.Opcodes.ICONST_0;
import static org.objectweb.asm.Opcodes.IFEQ;
import static org.objectweb.asm.Opcodes.IFNONNULL;
import static org.objectweb.asm.Opcodes.ILOAD;
import static org.objectweb.asm.Opcodes.INVOKEINTERFACE;
import static org.objectweb.asm.Opcodes.INVOKESPECIAL;
import static org.objectweb.asm.Opcodes.INVOKESTATIC;
import static org.objectweb.asm.Opcodes.INVOKEVIRTUAL;
import static org.objectweb.asm.Opcodes.ISTORE;
import static org.objectweb.asm.Opcodes.LADD;
import static org.objectweb.asm.Opcodes.LCONST_0;
import static org.objectweb.asm.Opcodes.LCONST_1;
import static org.objectweb.asm.Opcodes.LSUB;
import static org.objectweb.asm.Opcodes.NEW;
import static org.objectweb.asm.Opcodes.PUTFIELD;
import static org.objectweb.asm.Opcodes.RETURN;

import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.FieldInsnNode;
import org.objectweb.asm.tree.InsnList;
import org.objectweb.asm.tree.InsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.VarInsnNode;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * The five classes of Kafka that are patched, each only where it has the shape that is known.
 * <pre>
 * MemoryRecords          a field for what travels with the records
 * PartitionProduceData   its records, whatever their package
 * RequestContext         parseRequest: tag and principal are put on the records
 * DefaultRecordBatch     recordInputStream: the stream of one batch can be watched
 * LogValidator           validateMessagesAndAssignOffsetsCompressed: settled, watched or as it was
 * </pre>
 */
final class Patches {
    private static final String PREFIX = "batchval$";
    private static final String HOOK = "batchval/broker/hook/";
    private static final String HOOKS = HOOK + "Hooks";
    private static final String CALL = HOOK + "Call";
    private static final String OBJECT = "Ljava/lang/Object;";
    private static final String STREAM = "Ljava/io/InputStream;";
    private static final String COMMON = "org/apache/kafka/common/";
    private static final String REQUESTS = COMMON + "requests/";
    private static final String PARTITION_DATA =
        COMMON + "message/ProduceRequestData$PartitionProduceData";
    private static final String LOG = "org/apache/kafka/storage/internals/log/";
    private static final String COMPRESSED = "validateMessagesAndAssignOffsetsCompressed";

    /** The methods of LogValidator whose questions claims answer for a compressed batch. */
    static final List<String> ANSWERED = List.of(COMPRESSED, "validateBatch", "validateRecord",
        "validateKey", "validateTimestamp", "recordHasInvalidTimestamp",
        "validateRecordCompression", "getFirstBatchAndMaybeValidateNoMoreBatches");

    /** What is done with a class once its shape is known. */
    private interface Patch {
        void apply(Shape shape, Layout layout) throws ShapeMismatch;
    }

    private final Layout layout;
    private final Map<String, Patch> patches;

    private Patches(Layout layout) {
        this.layout = layout;
        Map<String, Patch> all = new LinkedHashMap<>();
        all.put(layout.records() + "MemoryRecords", Patches::memoryRecords);
        all.put(PARTITION_DATA, Patches::partitionData);
        all.put(REQUESTS + "RequestContext", Patches::requestContext);
        all.put(layout.records() + "DefaultRecordBatch", Patches::recordBatch);
        all.put(Layout.LOG_VALIDATOR, Patches::logValidator);
        patches = all;
    }

    /**
     * Return the patches of the version that these classes are of: all five were tried.
     *
     * @param bytes the bytes of a class by its internal name; null: there is none
     * @throws ShapeMismatch a class is not there, or not as it is known
     */
    static Patches of(Function<String, byte[]> bytes) throws ShapeMismatch {
        Shape validator = Shape.of(Layout.LOG_VALIDATOR, bytes);
        Layout layout = Layout.of(validator, bytes);
        String digest = validator.digest(ANSWERED, Layout::withFormerPackages);
        if (!Layout.KNOWN_DIGESTS.contains(digest))
            throw new ShapeMismatch(Layout.LOG_VALIDATOR, "its methods have the digest " + digest
                + ", which is not that of a release from 3.9.0 to 4.4.0");
        Patches found = new Patches(layout);
        used(layout, bytes);
        for (String name : found.patches.keySet())
            found.patch(name, Shape.of(name, bytes));
        return found;
    }

    /** Ask for what patched code uses of classes that are not patched. */
    private static void used(Layout layout, Function<String, byte[]> bytes) throws ShapeMismatch {
        Shape batch = Shape.of(layout.records() + "MutableRecordBatch", bytes);
        batch.method("setLastOffset", "(J)V");
        batch.method("setMaxTimestamp", "(L" + COMMON + "record/TimestampType;J)V");
        batch.method("setPartitionLeaderEpoch", "(I)V");
        Shape.of(layout.utils() + "PrimitiveRef$LongRef", bytes).field("value", "J");
        Shape.of(Layout.RESULT, bytes).method("<init>", layout.resultConstructor());
        Shape.of(layout.stats(), bytes).method("<init>", "(JIJ)V");
        Shape.of(COMMON + "compress/Compression", bytes)
            .method("type", "()L" + layout.records() + "CompressionType;");
        Shape.of(COMMON + "utils/Time", bytes).method("milliseconds", "()J");
        Shape.of(COMMON + "TopicPartition", bytes).method("topic", "()Ljava/lang/String;");
        // what the hooks themselves use
        Shape context = Shape.of(REQUESTS + "RequestContext", bytes);
        context.field("principal", "L" + COMMON + "security/auth/KafkaPrincipal;");
        context.field("listenerName", "L" + COMMON + "network/ListenerName;");
        Shape.of(COMMON + "network/ListenerName", bytes).method("value", "()Ljava/lang/String;");
        Shape principal = Shape.of(COMMON + "security/auth/KafkaPrincipal", bytes);
        principal.field("ANONYMOUS", "L" + COMMON + "security/auth/KafkaPrincipal;");
        principal.method("getName", "()Ljava/lang/String;");
        Shape.of(REQUESTS + "RequestAndSize", bytes)
            .field("request", "L" + REQUESTS + "AbstractRequest;");
        Shape.of(REQUESTS + "ProduceRequest", bytes)
            .method("data", "()L" + COMMON + "message/ProduceRequestData;");
        Shape.of(COMMON + "message/ProduceRequestData", bytes).method("topicData",
            "()L" + COMMON + "message/ProduceRequestData$TopicProduceDataCollection;");
        Shape.of(COMMON + "message/ProduceRequestData$TopicProduceData", bytes)
            .method("partitionData", "()Ljava/util/List;");
        Shape.of(PARTITION_DATA, bytes).method("unknownTaggedFields", "()Ljava/util/List;");
        Shape tagged = Shape.of(COMMON + "protocol/types/RawTaggedField", bytes);
        tagged.method("tag", "()I");
        tagged.method("data", "()[B");
    }

    /** Return whether a class is one of the five. */
    boolean has(String name) {
        return patches.containsKey(name);
    }

    /** Return the patched bytes of one of the five. */
    byte[] patch(String name, byte[] bytes) throws ShapeMismatch {
        return patch(name, new Shape(bytes).named(name));
    }

    private byte[] patch(String name, Shape shape) throws ShapeMismatch {
        shape.without(PREFIX);
        patches.get(name).apply(shape, layout);
        ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        shape.node.accept(writer);
        return writer.toByteArray();
    }

    // ---- MemoryRecords, PartitionProduceData ---------------------------------------------------

    private static void memoryRecords(Shape shape, Layout layout) throws ShapeMismatch {
        shape.field("buffer", "Ljava/nio/ByteBuffer;");
        shape.method("buffer", "()Ljava/nio/ByteBuffer;");
        shape.method("batches", "()Ljava/lang/Iterable;");
        shape.node.interfaces.add(HOOK + "CarriesClaims");
        String field = PREFIX + "carried";
        shape.node.visitField(ACC_PRIVATE | ACC_SYNTHETIC, field, OBJECT, null, null);
        getter(shape, PREFIX + "carried", field, OBJECT);
        setter(shape, PREFIX + "carry", field);
    }

    private static void partitionData(Shape shape, Layout layout) throws ShapeMismatch {
        String type = "L" + layout.records() + "BaseRecords;";
        shape.field("records", type);
        shape.method("read", "(L" + COMMON + "protocol/Readable;S)V");
        shape.node.interfaces.add(HOOK + "HasRecords");
        getter(shape, PREFIX + "records", "records", type);
    }

    private static void getter(Shape shape, String method, String field, String type) {
        MethodVisitor to = shape.node.visitMethod(ACC_PUBLIC | ACC_SYNTHETIC, method,
            "()" + OBJECT, null, null);
        to.visitCode();
        to.visitVarInsn(ALOAD, 0);
        to.visitFieldInsn(GETFIELD, shape.node.name, field, type);
        to.visitInsn(ARETURN);
        to.visitMaxs(0, 0);
        to.visitEnd();
    }

    private static void setter(Shape shape, String method, String field) {
        MethodVisitor to = shape.node.visitMethod(ACC_PUBLIC | ACC_SYNTHETIC, method,
            "(" + OBJECT + ")V", null, null);
        to.visitCode();
        to.visitVarInsn(ALOAD, 0);
        to.visitVarInsn(ALOAD, 1);
        to.visitFieldInsn(PUTFIELD, shape.node.name, field, OBJECT);
        to.visitInsn(RETURN);
        to.visitMaxs(0, 0);
        to.visitEnd();
    }

    // ---- RequestContext, DefaultRecordBatch ----------------------------------------------------

    private static void requestContext(Shape shape, Layout layout) throws ShapeMismatch {
        MethodNode parse = shape.method("parseRequest",
            "(Ljava/nio/ByteBuffer;)L" + REQUESTS + "RequestAndSize;");
        for (AbstractInsnNode end : shape.returns(parse, ARETURN)) {
            InsnList before = new InsnList();
            before.add(new InsnNode(DUP));
            before.add(new VarInsnNode(ALOAD, 0));
            before.add(new MethodInsnNode(INVOKESTATIC, HOOKS, "parsed",
                "(" + OBJECT + OBJECT + ")V", false));
            parse.instructions.insertBefore(end, before);
        }
    }

    private static void recordBatch(Shape shape, Layout layout) throws ShapeMismatch {
        MethodNode stream = shape.method("recordInputStream",
            "(L" + layout.utils() + "BufferSupplier;)" + STREAM);
        shape.node.interfaces.add(HOOK + "Watched");
        String field = PREFIX + "watch";
        shape.node.visitField(ACC_PRIVATE | ACC_SYNTHETIC, field, OBJECT, null, null);
        setter(shape, field, field);
        for (AbstractInsnNode end : shape.returns(stream, ARETURN)) {
            InsnList before = new InsnList();
            before.add(new VarInsnNode(ALOAD, 0));
            before.add(new FieldInsnNode(GETFIELD, shape.node.name, field,
                OBJECT));
            before.add(new MethodInsnNode(INVOKESTATIC, HOOKS, "stream",
                "(" + STREAM + OBJECT + ")" + STREAM, false));
            stream.instructions.insertBefore(end, before);
        }
    }

    // ---- LogValidator --------------------------------------------------------------------------

    private static void logValidator(Shape shape, Layout layout) throws ShapeMismatch {
        new ValidatorPatch(shape, layout).apply();
    }

    /** Names and descriptors of one version's LogValidator, and the code that is added to it. */
    private static final class ValidatorPatch {
        private final Shape shape;
        private final Layout layout;
        private final String self;
        private final String records;
        private final String recordsType;
        private final String batchType;
        private final String longRef;
        private final String recorder = LOG + "LogValidator$MetricsRecorder";
        private final String origin = "L" + LOG + "AppendOrigin;";
        private final String compressionType;
        private final String compression = "L" + COMMON + "compress/Compression;";
        private final String timestampType = "L" + COMMON + "record/TimestampType;";
        private final String topicPartition = "L" + COMMON + "TopicPartition;";
        private final String time = "L" + COMMON + "utils/Time;";
        private final String protocol = "org/apache/kafka/server/common/MetadataVersion";
        private final String descriptor;

        ValidatorPatch(Shape shape, Layout layout) {
            this.shape = shape;
            this.layout = layout;
            self = shape.node.name;
            records = layout.records() + "MemoryRecords";
            recordsType = "L" + records + ";";
            batchType = layout.records() + "MutableRecordBatch";
            longRef = layout.utils() + "PrimitiveRef$LongRef";
            compressionType = "L" + layout.records() + "CompressionType;";
            descriptor = "(L" + longRef + ";L" + recorder + ";L" + layout.utils()
                + "BufferSupplier;)L" + Layout.RESULT + ";";
        }

        void apply() throws ShapeMismatch {
            checkFields();
            shape.staticMethod("validateBatch", validateBatchDescriptor());
            MethodNode stock = shape.method(COMPRESSED, descriptor);
            watchBatches(stock);
            stock.name = PREFIX + "stock";
            stock.access = stock.access & ~(ACC_PUBLIC | ACC_PROTECTED | ACC_FINAL) | ACC_PRIVATE;
            compressed();
            begin();
            settled();
            watched();
        }

        private void checkFields() throws ShapeMismatch {
            Map<String, String> fields = new LinkedHashMap<>();
            fields.put("records", recordsType);
            fields.put("topicPartition", topicPartition);
            fields.put("time", time);
            fields.put("sourceCompressionType", compressionType);
            fields.put("targetCompression", compression);
            fields.put("compactedTopic", "Z");
            fields.put("toMagic", "B");
            fields.put("timestampType", timestampType);
            fields.put("timestampBeforeMaxMs", "J");
            fields.put("timestampAfterMaxMs", "J");
            fields.put("partitionLeaderEpoch", "I");
            fields.put("origin", origin);
            if (layout.boundsRecords())
                fields.put("maxRecordBodySize", "I");
            if (layout.hasProtocol())
                fields.put("interBrokerProtocolVersion", "L" + protocol + ";");
            for (Map.Entry<String, String> field : fields.entrySet())
                shape.field(field.getKey(), field.getValue());
            shape.onlyFields(new ArrayList<>(fields.keySet()));
        }

        private String validateBatchDescriptor() {
            String batch = "L" + layout.records() + "RecordBatch;";
            return "(" + topicPartition + batch + batch + origin + "BL" + recorder + ";)V";
        }

        /** Before Kafka opens the records of a batch, hand it to the call that may watch it. */
        private void watchBatches(MethodNode stock) throws ShapeMismatch {
            int free = stock.maxLocals;
            for (MethodInsnNode open : shape.calls(stock,
                List.of("skipKeyValueIterator", "streamingIterator"), 2)) {
                // the batch is below the arguments: they are put away and taken back
                InsnList before = new InsnList();
                Type[] arguments = Type.getArgumentTypes(open.desc);
                int local = free + 1;
                int[] at = new int[arguments.length];
                for (int i = 0; i < arguments.length; i++) {
                    at[i] = local;
                    local += arguments[i].getSize();
                }
                for (int i = arguments.length - 1; i >= 0; i--)
                    before.add(new VarInsnNode(arguments[i].getOpcode(ISTORE), at[i]));
                before.add(new InsnNode(DUP));
                before.add(new VarInsnNode(ALOAD, 0));
                before.add(new FieldInsnNode(GETFIELD, self, "records",
                    recordsType));
                before.add(new MethodInsnNode(INVOKESTATIC, HOOKS, "watch",
                    "(" + OBJECT + OBJECT + ")V", false));
                for (int i = 0; i < arguments.length; i++)
                    before.add(new VarInsnNode(arguments[i].getOpcode(ILOAD), at[i]));
                stock.instructions.insertBefore(open, before);
            }
        }

        private MethodVisitor method(int access, String name, String methodDescriptor) {
            MethodVisitor to = shape.node.visitMethod(access, name, methodDescriptor, null, null);
            to.visitCode();
            return to;
        }

        private static void end(MethodVisitor to) {
            to.visitMaxs(0, 0);
            to.visitEnd();
        }

        private void field(MethodVisitor to, String name, String type) {
            to.visitVarInsn(ALOAD, 0);
            to.visitFieldInsn(GETFIELD, self, name, type);
        }

        private void name(MethodVisitor to) {
            to.visitMethodInsn(INVOKEVIRTUAL, "java/lang/Enum", "name", "()Ljava/lang/String;",
                false);
        }

        private void stock(MethodVisitor to) {
            for (int argument = 0; argument <= 3; argument++)
                to.visitVarInsn(ALOAD, argument);
            to.visitMethodInsn(INVOKESPECIAL, self, PREFIX + "stock", descriptor, false);
        }

        private String withCall() {
            return descriptor.replace(")", "L" + CALL + ";)");
        }

        /** The method that Kafka calls: it asks the hooks, and does what they say. */
        private void compressed() {
            MethodVisitor to = method(ACC_PUBLIC, COMPRESSED, descriptor);
            to.visitVarInsn(ALOAD, 0);
            to.visitMethodInsn(INVOKESPECIAL, self, PREFIX + "begin", "()L" + CALL + ";", false);
            to.visitVarInsn(ASTORE, 4);
            Label called = new Label();
            to.visitVarInsn(ALOAD, 4);
            to.visitJumpInsn(IFNONNULL, called);
            stock(to);
            to.visitInsn(ARETURN);
            to.visitLabel(called);
            to.visitFrame(F_APPEND, 1, new Object[] {CALL}, 0, null);
            Label watched = new Label();
            to.visitVarInsn(ALOAD, 4);
            to.visitMethodInsn(INVOKEVIRTUAL, CALL, "isSettled", "()Z", false);
            to.visitJumpInsn(IFEQ, watched);
            callWith(to, PREFIX + "settled");
            to.visitLabel(watched);
            to.visitFrame(F_SAME, 0, null, 0, null);
            callWith(to, PREFIX + "watched");
            end(to);
        }

        private void callWith(MethodVisitor to, String name) {
            for (int argument = 0; argument <= 4; argument++)
                to.visitVarInsn(ALOAD, argument);
            to.visitMethodInsn(INVOKESPECIAL, self, name, withCall(), false);
            to.visitInsn(ARETURN);
        }

        private void begin() {
            MethodVisitor to =
                method(ACC_PRIVATE | ACC_SYNTHETIC, PREFIX + "begin", "()L" + CALL + ";");
            field(to, "records", recordsType);
            field(to, "records", recordsType);
            to.visitMethodInsn(INVOKEVIRTUAL, records, "buffer", "()Ljava/nio/ByteBuffer;", false);
            field(to, "topicPartition", topicPartition);
            to.visitMethodInsn(INVOKEVIRTUAL, COMMON + "TopicPartition", "topic",
                "()Ljava/lang/String;", false);
            field(to, "origin", origin);
            name(to);
            field(to, "sourceCompressionType", compressionType);
            name(to);
            field(to, "targetCompression", compression);
            to.visitMethodInsn(INVOKEINTERFACE, COMMON + "compress/Compression", "type",
                "()" + compressionType, true);
            name(to);
            field(to, "toMagic", "B");
            field(to, "timestampType", timestampType);
            name(to);
            field(to, "compactedTopic", "Z");
            field(to, "timestampBeforeMaxMs", "J");
            field(to, "timestampAfterMaxMs", "J");
            if (layout.boundsRecords())
                field(to, "maxRecordBodySize", "I");
            else
                to.visitLdcInsn(Integer.MAX_VALUE);
            refusedCodec(to);
            field(to, "time", time);
            to.visitMethodInsn(INVOKEINTERFACE, COMMON + "utils/Time", "milliseconds", "()J", true);
            String text = "Ljava/lang/String;";
            to.visitMethodInsn(INVOKESTATIC, HOOKS, "begin", "(" + OBJECT + "Ljava/nio/ByteBuffer;"
                + text + text + text + text + "I" + text + "ZJJIZJ)L" + CALL + ";", false);
            to.visitInsn(ARETURN);
            end(to);
        }

        /** Push whether this broker refuses zstd because of its inter.broker.protocol.version. */
        private void refusedCodec(MethodVisitor to) {
            if (!layout.hasProtocol()) {
                to.visitInsn(ICONST_0);
                return;
            }
            field(to, "interBrokerProtocolVersion", "L" + protocol + ";");
            to.visitFieldInsn(GETSTATIC, protocol, "IBP_2_1_IV0", "L" + protocol + ";");
            to.visitMethodInsn(INVOKEVIRTUAL, protocol, "isLessThan", "(L" + protocol + ";)Z",
                false);
        }

        /** What Kafka does with a batch once each record is right, without looking at records. */
        private void settled() {
            MethodVisitor to =
                method(ACC_PRIVATE | ACC_SYNTHETIC, PREFIX + "settled", withCall());
            Label from = new Label();
            Label until = new Label();
            Label refused = new Label();
            to.visitTryCatchBlock(from, until, refused, null);
            to.visitLabel(from);
            field(to, "records", recordsType);
            to.visitMethodInsn(INVOKEVIRTUAL, records, "batches", "()Ljava/lang/Iterable;", false);
            to.visitMethodInsn(INVOKEINTERFACE, "java/lang/Iterable", "iterator",
                "()Ljava/util/Iterator;", true);
            to.visitMethodInsn(INVOKEINTERFACE, "java/util/Iterator", "next",
                "()Ljava/lang/Object;", true);
            to.visitTypeInsn(CHECKCAST, batchType);
            to.visitVarInsn(ASTORE, 5);
            field(to, "topicPartition", topicPartition);
            to.visitVarInsn(ALOAD, 5);
            to.visitVarInsn(ALOAD, 5);
            field(to, "origin", origin);
            field(to, "toMagic", "B");
            to.visitVarInsn(ALOAD, 2);
            to.visitMethodInsn(INVOKESTATIC, self, "validateBatch", validateBatchDescriptor(),
                false);
            to.visitLabel(until);
            // offsetCounter.value += count; batch.setLastOffset(offsetCounter.value - 1)
            to.visitVarInsn(ALOAD, 1);
            to.visitInsn(DUP);
            to.visitFieldInsn(GETFIELD, longRef, "value", "J");
            to.visitVarInsn(ALOAD, 4);
            to.visitMethodInsn(INVOKEVIRTUAL, CALL, "count", "()I", false);
            to.visitInsn(I2L);
            to.visitInsn(LADD);
            to.visitFieldInsn(PUTFIELD, longRef, "value", "J");
            to.visitVarInsn(ALOAD, 5);
            lastOffset(to);
            to.visitMethodInsn(INVOKEINTERFACE, batchType, "setLastOffset", "(J)V", true);
            to.visitVarInsn(ALOAD, 5);
            field(to, "timestampType", timestampType);
            ofCall(to, "maxTimestamp");
            to.visitMethodInsn(INVOKEINTERFACE, batchType, "setMaxTimestamp",
                "(" + timestampType + "J)V", true);
            to.visitVarInsn(ALOAD, 5);
            field(to, "partitionLeaderEpoch", "I");
            to.visitMethodInsn(INVOKEINTERFACE, batchType, "setPartitionLeaderEpoch", "(I)V", true);
            accepted(to, () -> to.visitInsn(Opcodes.ACONST_NULL));
            to.visitTypeInsn(NEW, Layout.RESULT);
            to.visitInsn(DUP);
            ofCall(to, "now");
            field(to, "records", recordsType);
            ofCall(to, "maxTimestamp");
            if (layout.tellsLastOffset())
                lastOffset(to);
            to.visitInsn(ICONST_0);
            to.visitTypeInsn(NEW, layout.stats());
            to.visitInsn(DUP);
            ofCall(to, "uncompressedBytes");
            to.visitInsn(ICONST_0);
            to.visitInsn(LCONST_0);
            to.visitMethodInsn(INVOKESPECIAL, layout.stats(), "<init>", "(JIJ)V", false);
            to.visitMethodInsn(INVOKESPECIAL, Layout.RESULT, "<init>",
                layout.resultConstructor(), false);
            to.visitInsn(ARETURN);
            to.visitLabel(refused);
            to.visitFrame(F_SAME1, 0, null, 1, new Object[] {"java/lang/Throwable"});
            to.visitVarInsn(ASTORE, 5);
            accepted(to, () -> to.visitVarInsn(ALOAD, 5));
            to.visitVarInsn(ALOAD, 5);
            to.visitInsn(ATHROW);
            end(to);
        }

        private void accepted(MethodVisitor to, Runnable refusal) {
            to.visitVarInsn(ALOAD, 4);
            refusal.run();
            to.visitMethodInsn(INVOKEVIRTUAL, CALL, "accepted", "(Ljava/lang/Throwable;)V", false);
        }

        private void lastOffset(MethodVisitor to) {
            to.visitVarInsn(ALOAD, 1);
            to.visitFieldInsn(GETFIELD, longRef, "value", "J");
            to.visitInsn(LCONST_1);
            to.visitInsn(LSUB);
        }

        private static void ofCall(MethodVisitor to, String name) {
            to.visitVarInsn(ALOAD, 4);
            to.visitMethodInsn(INVOKEVIRTUAL, CALL, name, "()J", false);
        }

        /** Kafka's own method, with its end noted. */
        private void watched() {
            MethodVisitor to =
                method(ACC_PRIVATE | ACC_SYNTHETIC, PREFIX + "watched", withCall());
            Label from = new Label();
            Label until = new Label();
            Label refused = new Label();
            to.visitTryCatchBlock(from, until, refused, null);
            to.visitLabel(from);
            stock(to);
            to.visitLabel(until);
            to.visitVarInsn(ASTORE, 5);
            to.visitVarInsn(ALOAD, 4);
            to.visitInsn(Opcodes.ACONST_NULL);
            ended(to);
            to.visitVarInsn(ALOAD, 5);
            to.visitInsn(ARETURN);
            to.visitLabel(refused);
            to.visitFrame(F_SAME1, 0, null, 1, new Object[] {"java/lang/Throwable"});
            to.visitVarInsn(ASTORE, 5);
            to.visitVarInsn(ALOAD, 4);
            to.visitVarInsn(ALOAD, 5);
            ended(to);
            to.visitVarInsn(ALOAD, 5);
            to.visitInsn(ATHROW);
            end(to);
        }

        private static void ended(MethodVisitor to) {
            to.visitMethodInsn(INVOKEVIRTUAL, CALL, "ended", "(Ljava/lang/Throwable;)V", false);
        }
    }
}
