package batchval.oracle;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The broker's classes that differ between the releases of Kafka, and which of them this has. */
public final class LogClasses {
    private static final String JAVA_LOG = "org.apache.kafka.storage.internals.log.UnifiedLog";
    /**
     * UnifiedLog, in Scala before 4.1 (4.0 has both, and its broker uses that in Scala); Log before
     * 3.1.
     */
    static final Class<?> LOG = Reflect.need("kafka.log.UnifiedLog", JAVA_LOG, "kafka.log.Log");
    private static final Class<?> CONFIG = Reflect.need(
        "org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig");
    private static final Class<?> TARGETS = Reflect.need(
        "org.apache.kafka.server.record.BrokerCompressionType",
        "kafka.message.BrokerCompressionCodec");
    private static final Class<?> OUT_OF_ORDER = Reflect.need(
        "org.apache.kafka.storage.internals.log.OffsetsOutOfOrderException",
        "kafka.common.OffsetsOutOfOrderException");
    private static final Class<?> COMPRESSION =
        Reflect.find("org.apache.kafka.common.compress.Compression");

    /**
     * Whether the length that a record states is checked before its bytes are read
     * (max.decompressed.message.bytes).
     */
    public static final boolean CHECKS_LENGTHS =
        hasTopicKey("max.decompressed.message.bytes");
    /**
     * Whether one configuration bounds timestamps on both sides
     * (message.timestamp.difference.max.ms, KIP-937).
     */
    public static final boolean BOUNDS_THE_DIFFERENCE =
        !hasTopicKey("message.timestamp.before.max.ms");
    /**
     * Whether brokers answer Produce v0 to v2, which may hold several messages of magic 0 and 1
     * (KIP-896).
     */
    public static final boolean ADMITS_PRODUCE_V0 = ApiKeys.PRODUCE.oldestVersion() < 3;
    /** Whether followers drop batches of a leader epoch above their own (KAFKA-18723). */
    static final boolean DROPS_NEWER_EPOCHS =
        Reflect.hasMethod(LOG, "hasHigherPartitionLeaderEpoch");
    /** Whether the batch loop ends at an offset out of order; the Scala log asks after its loop. */
    static final boolean CHECKS_ORDER_AT_ONCE = LOG.getName().equals(JAVA_LOG);

    /** What LogValidator gave. */
    record Result(long logAppendTimeMs, MemoryRecords validatedRecords, long maxTimestampMs,
                  boolean messageSizeMaybeChanged, int converted, long temporaryBytes) {
        static Result of(Object r, long now) {
            Object stats = Reflect.get(r, "recordValidationStats", "recordConversionStats");
            return new Result(now,
                (MemoryRecords) Reflect.get(r, "validatedRecords"),
                (long) Reflect.get(r, "maxTimestampMs", "maxTimestamp"),
                (boolean) Reflect.get(r, "messageSizeMaybeChanged"),
                (int) Reflect.get(stats, "numRecordsConverted"),
                (long) Reflect.get(stats, "temporaryMemoryBytes"));
        }
    }

    /** The newest inter-broker protocol of this release. */
    static Object latestProtocol() {
        Class<?> versions = Reflect.find("org.apache.kafka.server.common.MetadataVersion");
        if (versions == null)
            return Reflect.call(Reflect.module("kafka.api.ApiVersion"), "latestVersion");
        return Reflect.hasMethod(versions, "latestProduction")
            ? Reflect.callStatic(versions, "latestProduction")
            : Reflect.callStatic(versions, "latest");
    }

    private static boolean hasTopicKey(String key) {
        return topicKeyNames().contains(key);
    }

    @SuppressWarnings("unchecked")
    static Collection<String> topicKeyNames() {
        return (Collection<String>) asJava(Reflect.callStatic(CONFIG, "configNames"));
    }

    /** What LogConfig says of each topic key. */
    static Map<String, ConfigDef.ConfigKey> topicKeys() {
        Object definition = CONFIG.getName().startsWith("kafka.")
            ? Reflect.call(Reflect.module(CONFIG.getName()), "configDefCopy")
            : Reflect.callStatic(CONFIG, "configDefCopy");
        return ((ConfigDef) definition).configKeys();
    }

    /** A topic's LogConfig of these keys; the other keys have the release's defaults. */
    static Object config(Map<String, String> topic) {
        Class<?> sets = Reflect.find("scala.collection.immutable.Set$");
        return sets == null ? Reflect.make(CONFIG, topic)
            : Reflect.make(CONFIG, topic, Reflect.call(Reflect.module(sets), "empty"));
    }

    /**
     * As UnifiedLog asks for it: a Compression, before 3.8 a CompressionType, before 3.5 a
     * CompressionCodec.
     */
    static Object targetFor(Map<String, String> topic, CompressionType found) {
        if (COMPRESSION != null)
            return Reflect.callStatic(TARGETS, "targetCompression",
                Reflect.get(config(topic), "compression"), found);
        String type = topic.get("compression.type");
        if (TARGETS.getName().startsWith("kafka."))
            return Reflect.callStatic(TARGETS, "getTargetCompressionCodec", type,
                scalaCodec(found));
        return Reflect.call(Reflect.callStatic(TARGETS, "forName", type),
            "targetCompressionType", found);
    }

    /** A codec as the Scala classes before 3.5 name it. */
    static Object scalaCodec(CompressionType type) {
        return Reflect.callStatic(Reflect.need("kafka.message.CompressionCodec"),
            "getCompressionCodec", (int) type.id);
    }

    static Object brokerTopicStats() {
        Class<?> stats = Reflect.need("org.apache.kafka.storage.log.metrics.BrokerTopicStats",
            "kafka.server.BrokerTopicStats");
        return Reflect.make(stats, with(absent(), false));
    }

    /** RequestLocal without caches, or nothing before 3.0. */
    static Object[] requestLocal() {
        Class<?> java = Reflect.find("org.apache.kafka.server.common.RequestLocal");
        if (java != null)
            return new Object[]{Reflect.callStatic(java, "noCaching")};
        Class<?> scala = Reflect.find("kafka.server.RequestLocal");
        return scala == null ? new Object[0]
            : new Object[]{Reflect.callStatic(scala, "NoCaching")};
    }

    /** What RecordValidationException holds: the answer, and the indexes of the records. */
    record Refusal(Throwable answer, List<Integer> indexes) {
        /** Return null where the exception is another one. */
        static Refusal of(Throwable thrown) {
            if (!thrown.getClass().getSimpleName().equals("RecordValidationException"))
                return null;
            return new Refusal((Throwable) Reflect.get(thrown, "invalidException"),
                asJava(Reflect.get(thrown, "recordErrors")).stream()
                    .map(e -> ((ProduceResponse.RecordError) e).batchIndex).toList());
        }
    }

    /** A codec with its default level: a Compression, before 3.8 a CompressionType. */
    private static Object compression(CompressionType type) {
        return COMPRESSION == null ? type
            : Reflect.call(Reflect.callStatic(COMPRESSION, "of", type), "build");
    }

    /** A stream that compresses as a producer does. */
    public static OutputStream compressing(CompressionType type, ByteBufferOutputStream to,
                                           byte magic) {
        return (OutputStream) Reflect.call(compression(type), "wrapForOutput", to, magic);
    }

    /** One frame by the zstd-jni of this release, which the build does not compile against. */
    public static byte[] zstd(byte[] plain, int level) {
        return (byte[]) Reflect.callStatic(Reflect.need("com.github.luben.zstd.Zstd"), "compress",
            plain, level);
    }

    /** One block by the snappy-java of this release, without the framing of Kafka's streams. */
    public static byte[] snappy(byte[] plain) {
        return (byte[]) Reflect.callStatic(Reflect.need("org.xerial.snappy.Snappy"), "compress",
            (Object) plain);
    }

    /** A builder of one batch, without control records and without a limit of its size. */
    public static MemoryRecordsBuilder builder(ByteBuffer to, byte magic, CompressionType codec,
                                               TimestampType type, long baseOffset,
                                               long appendTime, long producerId,
                                               short producerEpoch, int baseSequence,
                                               boolean transactional, int leaderEpoch) {
        return (MemoryRecordsBuilder) Reflect.make(MemoryRecordsBuilder.class, to, magic,
            compression(codec), type, baseOffset, appendTime, producerId, producerEpoch,
            baseSequence, transactional, false, leaderEpoch, Integer.MAX_VALUE);
    }

    /** What UnifiedLog throws where offsets must ascend and do not. */
    static RuntimeException offsetsOutOfOrder(String message) {
        return (RuntimeException) Reflect.make(OUT_OF_ORDER, message);
    }

    /** An absent value of a parameter that has been an Option of Scala and an Optional of Java. */
    static Object[] absent() {
        Class<?> option = Reflect.find("scala.Option");
        return option == null ? new Object[]{Optional.empty(), Optional.empty()}
            : new Object[]{Optional.empty(), Reflect.callStatic(option, "empty")};
    }

    /** A collection of Java or of Scala. */
    static Collection<?> asJava(Object all) {
        if (all instanceof Collection<?> java)
            return java;
        return (Collection<?>) Reflect.callStatic(
            Reflect.need("scala.jdk.javaapi.CollectionConverters"), "asJavaCollection", all);
    }

    static Object[] with(Object[] more, Object... values) {
        Object[] all = Arrays.copyOf(values, values.length + more.length);
        System.arraycopy(more, 0, all, values.length, more.length);
        return all;
    }

    private LogClasses() { }
}
