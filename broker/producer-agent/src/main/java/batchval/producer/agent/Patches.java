package batchval.producer.agent;

import static batchval.producer.agent.KafkaClass.call;
import static batchval.producer.agent.KafkaClass.code;
import static batchval.producer.agent.KafkaClass.hook;
import static batchval.producer.agent.KafkaClass.load;
import static batchval.producer.agent.KafkaClass.neighbour;
import static batchval.producer.agent.KafkaClass.one;
import static batchval.producer.agent.KafkaClass.type;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.FieldInsnNode;
import org.objectweb.asm.tree.InsnList;
import org.objectweb.asm.tree.InsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;

/**
 * The changes to five classes of the Java producer. Each looks for exactly the fields, methods and
 * instructions that it depends on, and throws {@link Mismatch} where one differs.
 * <pre>
 * MemoryRecordsBuilder   counts while records are appended; keeps and fills the place of claims
 * MemoryRecords          has the claims of the batch that it is
 * ProducerBatch          starts the claims of its builder
 * Sender                 may resend a batch of one record without claims in its payload
 * PartitionProduceData   gets the tag when its size is computed, which is when the version is known
 * </pre>
 */
final class Patches {
    /** The change of one class. */
    interface Patch {
        void apply(KafkaClass to) throws Mismatch;
    }

    private static final String KAFKA = "org/apache/kafka/";
    private static final String PRODUCER = KAFKA + "clients/producer/internals/";
    private static final String COMPRESSION = KAFKA + "common/compress/Compression";
    private static final String TAGGED_FIELD = KAFKA + "common/protocol/types/RawTaggedField";
    private static final String BUILDING = Type.getDescriptor(Building.class);
    private static final String BUFFER = "Ljava/nio/ByteBuffer;";
    private static final String HEADERS = "[Lorg/apache/kafka/common/header/Header;";
    private static final String FIELD = "batchval$building";

    /** Where record classes are: since 4.4, and before. */
    static final List<String> PACKAGES = List.of(
        KAFKA + "common/record/internal/", KAFKA + "common/record/");

    private final String records;

    private Patches(String records) {
        this.records = records;
    }

    /** Return the changes by the internal names of their classes. */
    static Map<String, Patch> of(String recordsPackage) {
        Patches patches = new Patches(recordsPackage);
        Map<String, Patch> all = new LinkedHashMap<>();
        all.put(builder(recordsPackage), patches::builder);
        all.put(recordsPackage + "MemoryRecords", patches::records);
        all.put(PRODUCER + "ProducerBatch", patches::batch);
        all.put(PRODUCER + "Sender", patches::sender);
        all.put(KAFKA + "common/message/ProduceRequestData$PartitionProduceData",
            patches::partition);
        return all;
    }

    static String builder(String recordsPackage) {
        return recordsPackage + "MemoryRecordsBuilder";
    }

    // ---- MemoryRecordsBuilder ------------------------------------------------------------------

    private void builder(KafkaClass to) throws Mismatch {
        to.implement(PatchedBuilder.class);
        to.method("magic", "()B");
        to.method("numRecords", "()I");
        to.method("isControlBatch", "()Z");
        to.method("hasDeleteHorizonMs", "()Z");
        to.method("buffer", "()" + BUFFER);
        getters(to);
        stream(to);
        appending(to);
        estimating(to);
        closing(to);
        addBuilding(to);
    }

    private static void getters(KafkaClass to) throws Mismatch {
        to.addGetter("batchval$timestampType", Object.class, "timestampType",
            to.field("timestampType", "L" + KAFKA + "common/record/TimestampType;"));
        to.addGetter("batchval$initialPosition", int.class, "initialPosition",
            to.field("initialPosition", "I"));
        to.addGetter("batchval$recordBytes", int.class, "uncompressedRecordsSizeInBytes",
            to.field("uncompressedRecordsSizeInBytes", "I"));
        to.addGetter("batchval$lastOffset", Long.class, "lastOffset",
            to.field("lastOffset", "Ljava/lang/Long;"));
        to.addGetter("batchval$baseOffset", long.class, "baseOffset", to.field("baseOffset", "J"));
        to.addGetter("batchval$writeLimit", int.class, "writeLimit", to.field("writeLimit", "I"));
    }

    /** The stream that the compressor writes to, and the codec. */
    private void stream(KafkaClass to) throws Mismatch {
        String stream = to.field("bufferStream", null);
        String owner = Type.getType(stream).getInternalName();
        to.field("compression", "L" + COMPRESSION + ";");
        String codec = "()L" + records + "CompressionType;";
        MethodNode constructor = to.method("<init>", "(" + stream + "BL" + COMPRESSION
            + ";L" + KAFKA + "common/record/TimestampType;JJJSIZZIIJ)V");
        call(constructor, owner, "position", "(I)V");
        if (KafkaClass.calls(constructor, COMPRESSION, "type", codec).isEmpty())
            throw new Mismatch("its constructor does not ask for the codec");
        MethodInsnNode wrap = call(constructor, COMPRESSION, "wrapForOutput", null);
        if (!wrap.desc.equals("(" + stream + "B)Ljava/io/OutputStream;"))
            throw new Mismatch("wrapForOutput is " + wrap.desc);
        to.add("batchval$codec", "()Ljava/lang/Object;", code(
            to.get("compression", "L" + COMPRESSION + ";"),
            new MethodInsnNode(Opcodes.INVOKEINTERFACE, COMPRESSION, "type", codec, true)),
            Type.getType(Object.class));
        to.add("batchval$position", "(I)V", code(
            to.get("bufferStream", stream), load(Opcodes.ILOAD, 1),
            new MethodInsnNode(Opcodes.INVOKEVIRTUAL, owner, "position", "(I)V", false)),
            Type.VOID_TYPE);
    }

    /** Count each record: in front of its writing, and after it. */
    private void appending(KafkaClass to) throws Mismatch {
        MethodNode append = to.method("appendDefaultRecord",
            "(JJ" + BUFFER + BUFFER + HEADERS + ")V");
        MethodInsnNode write = call(append, records + "DefaultRecord", "writeTo",
            "(Ljava/io/DataOutputStream;IJ" + BUFFER + BUFFER + HEADERS + ")I");
        MethodInsnNode note = call(append, to.name(), "recordWritten", "(JJI)V");
        if (append.instructions.indexOf(write) > append.instructions.indexOf(note))
            throw new Mismatch("appendDefaultRecord calls recordWritten first");
        append.instructions.insert(code(
            to.get(FIELD, BUILDING), load(Opcodes.ALOAD, 5), load(Opcodes.ALOAD, 6),
            hook(Building.class, "begin")));

        MethodNode written = to.method("recordWritten", "(JJI)V");
        one(KafkaClass.accesses(written, Opcodes.PUTFIELD, to.name(), "numRecords"), written,
            "writes of numRecords");
        one(KafkaClass.accesses(written, Opcodes.PUTFIELD, to.name(),
            "uncompressedRecordsSizeInBytes"), written, "writes of uncompressedRecordsSizeInBytes");
        one(KafkaClass.accesses(written, Opcodes.PUTFIELD, to.name(), "maxTimestamp"), written,
            "writes of maxTimestamp");
        written.instructions.insert(code(to.get(FIELD, BUILDING), load(Opcodes.LLOAD, 3),
            load(Opcodes.ILOAD, 5), hook(Building.class, "written")));
    }

    /** Add the claims to the estimates of a batch's size. */
    private void estimating(KafkaClass to) throws Mismatch {
        to.field("batchHeaderSizeInBytes", "I");
        MethodNode estimate = to.method("estimatedBytesWritten", "()I");
        if (to.has("estimatedBytesWritten", "(I)I")) {
            call(estimate, to.name(), "estimatedBytesWritten", "(I)I");
            estimate = to.method("estimatedBytesWritten", "(I)I");
        }
        List<AbstractInsnNode> returns = KafkaClass.instructions(estimate, Opcodes.IRETURN);
        if (returns.size() != 2 || KafkaClass.accesses(estimate, Opcodes.GETFIELD, to.name(),
            "batchHeaderSizeInBytes").size() != 2)
            throw new Mismatch("estimatedBytesWritten does not have two results with the header");
        for (AbstractInsnNode end : returns)
            estimate.instructions.insertBefore(end,
                code(to.get(FIELD, BUILDING), hook(Building.class, "withCarrier")));
    }

    /** Fill the place of the claims before the header, and with it the crc, is written. */
    private void closing(KafkaClass to) throws Mismatch {
        MethodNode header = to.method("writeDefaultBatchHeader", "()I");
        MethodInsnNode write = one(KafkaClass.calls(header, records + "DefaultRecordBatch",
            "writeHeader", null), header, "calls of writeHeader");
        AbstractInsnNode end = one(KafkaClass.instructions(header, Opcodes.IRETURN), header,
            "results");
        if (header.instructions.indexOf(write) > header.instructions.indexOf(end))
            throw new Mismatch("writeDefaultBatchHeader returns before it writes");
        header.instructions.insertBefore(end,
            code(to.get(FIELD, BUILDING), hook(Building.class, "withoutCarrier")));
        header.instructions.insert(code(load(Opcodes.ALOAD, 0), hook(Hooks.class, "close")));

        MethodNode close = to.method("close", "()V");
        MethodInsnNode compressed = call(close, to.name(), "closeForRecordAppends", "()V");
        MethodInsnNode wrote = call(close, to.name(), "writeDefaultBatchHeader", "()I");
        String built = "L" + records + "MemoryRecords;";
        MethodInsnNode read = call(close, records + "MemoryRecords", "readableRecords",
            "(" + BUFFER + ")" + built);
        if (close.instructions.indexOf(compressed) > close.instructions.indexOf(wrote)
            || close.instructions.indexOf(wrote) > close.instructions.indexOf(read))
            throw new Mismatch("close has another order");
        if (!(neighbour(read, true) instanceof FieldInsnNode put)
            || put.getOpcode() != Opcodes.PUTFIELD || !put.name.equals("builtRecords"))
            throw new Mismatch("close does not keep the records that it built");
        to.field("builtRecords", built);
        close.instructions.insert(put, code(load(Opcodes.ALOAD, 0), to.get("builtRecords", built),
            hook(Hooks.class, "built")));
    }

    private static void addBuilding(KafkaClass to) {
        to.addField(FIELD, BUILDING);
        to.addGetter(FIELD, Building.class, FIELD, BUILDING);
        to.addSetter(FIELD, Building.class, FIELD);
    }

    // ---- the other classes ---------------------------------------------------------------------

    private void records(KafkaClass to) throws Mismatch {
        to.implement(PatchedRecords.class);
        to.field("buffer", BUFFER);
        call(to.method("buffer", "()" + BUFFER), "java/nio/ByteBuffer", "duplicate", null);
        addBuilding(to);
    }

    private void batch(KafkaClass to) throws Mismatch {
        to.implement(PatchedBatch.class);
        String builder = "L" + builder(records) + ";";
        to.field("recordsBuilder", builder);
        to.field("recordCount", "I");
        MethodNode constructor = to.method("<init>",
            "(L" + KAFKA + "common/TopicPartition;" + builder + "JZ)V");
        call(constructor, builder(records), "setEstimatedCompressionRatio", "(F)V");
        AbstractInsnNode end = one(KafkaClass.instructions(constructor, Opcodes.RETURN),
            constructor, "ends");
        MethodNode other = to.method("<init>",
            "(L" + KAFKA + "common/TopicPartition;" + builder + "J)V");
        call(other, to.name(), "<init>", constructor.desc);
        constructor.instructions.insertBefore(end, code(load(Opcodes.ALOAD, 2),
            load(Opcodes.ILOAD, 5), hook(Hooks.class, "start")));
        to.addGetter("batchval$builder", Object.class, "recordsBuilder", builder);
    }

    private void sender(KafkaClass to) throws Mismatch {
        String batch = PRODUCER + "ProducerBatch";
        MethodNode complete = to.method("completeBatch", "(L" + batch + ";L" + KAFKA
            + "common/requests/ProduceResponse$PartitionResponse;JJLjava/util/Map;)V");
        FieldInsnNode count = one(
            KafkaClass.accesses(complete, Opcodes.GETFIELD, batch, "recordCount"), complete,
            "reads of recordCount");
        AbstractInsnNode object = neighbour(count, false);
        AbstractInsnNode one = neighbour(count, true);
        if (object.getOpcode() != Opcodes.ALOAD || one.getOpcode() != Opcodes.ICONST_1
            || neighbour(one, true).getOpcode() != Opcodes.IF_ICMPLE)
            throw new Mismatch("completeBatch does not compare recordCount with 1");
        call(complete, PRODUCER + "RecordAccumulator", "splitAndReenqueue", null);
        complete.instructions.insert(count,
            code(load(Opcodes.ALOAD, 1), hook(Hooks.class, "splittable")));
    }

    private void partition(KafkaClass to) throws Mismatch {
        to.implement(PatchedPartition.class);
        String data = to.field("records", "L" + records + "BaseRecords;");
        to.field("_unknownTaggedFields", "Ljava/util/List;");
        to.method("unknownTaggedFields", "()Ljava/util/List;");
        String accumulator = "L" + KAFKA + "common/protocol/MessageSizeAccumulator;L" + KAFKA
            + "common/protocol/ObjectSerializationCache;";
        MethodNode size = to.method("addSize", "(" + accumulator + "S)V");
        call(size, TAGGED_FIELD, "tag", "()I");
        size.instructions.insert(code(load(Opcodes.ALOAD, 0), load(Opcodes.ILOAD, 3),
            hook(Hooks.class, "tag")));
        to.addGetter("batchval$records", Object.class, "records", data);
        InsnList fields = code(load(Opcodes.ALOAD, 0), new MethodInsnNode(Opcodes.INVOKEVIRTUAL,
            to.name(), "unknownTaggedFields", "()Ljava/util/List;", false));
        to.add("batchval$fields", "()Ljava/util/List;", fields, Type.getType(List.class));
        to.add("batchval$newField", "(I[B)Ljava/lang/Object;", code(
            type(Opcodes.NEW, TAGGED_FIELD), new InsnNode(Opcodes.DUP), load(Opcodes.ILOAD, 1),
            load(Opcodes.ALOAD, 2), new MethodInsnNode(Opcodes.INVOKESPECIAL, TAGGED_FIELD,
                "<init>", "(I[B)V", false)), Type.getType(Object.class));
        to.addField("batchval$tag", "Ljava/lang/Object;");
        to.addGetter("batchval$tag", Object.class, "batchval$tag", "Ljava/lang/Object;");
        to.addSetter("batchval$tag", Object.class, "batchval$tag");
    }
}
