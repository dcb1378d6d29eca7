package batchval.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;

import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Optional;

/** The broker's classes that differ between the releases of Kafka, and which of them this has. */
public final class LogClasses {
    private static final String JAVA_LOG = "org.apache.kafka.storage.internals.log.UnifiedLog";
    /** UnifiedLog, in Scala before 4.1: 4.0 has both, and its broker uses that in Scala. */
    static final Class<?> LOG = Reflect.need("kafka.log.UnifiedLog", JAVA_LOG);
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
        LogConfig.configNames().contains("max.decompressed.message.bytes");
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
        static Result of(LogValidator.ValidationResult r) {
            Object stats = Reflect.get(r, "recordValidationStats", "recordConversionStats");
            return new Result((long) Reflect.get(r, "logAppendTimeMs"),
                (MemoryRecords) Reflect.get(r, "validatedRecords"),
                (long) Reflect.get(r, "maxTimestampMs"),
                (boolean) Reflect.get(r, "messageSizeMaybeChanged"),
                (int) Reflect.get(stats, "numRecordsConverted"),
                (long) Reflect.get(stats, "temporaryMemoryBytes"));
        }
    }

    /** LogValidator of this release. The inter-broker protocol is the release's own. */
    static LogValidator validator(MemoryRecords records, TopicPartition partition, Time time,
                                  CompressionType source, Object target, boolean compact,
                                  byte toMagic, TimestampType timestampType, long beforeMaxMs,
                                  long afterMaxMs, int leaderEpoch, AppendOrigin origin,
                                  int maxRecordBody) {
        return (LogValidator) Reflect.make(LogValidator.class, records, partition, time, source,
            target, compact, toMagic, timestampType, beforeMaxMs, afterMaxMs, leaderEpoch, origin,
            maxRecordBody, latestProtocol());
    }

    /** The newest inter-broker protocol of this release. */
    static Object latestProtocol() {
        Class<?> versions = Reflect.need("org.apache.kafka.server.common.MetadataVersion");
        return Reflect.hasMethod(versions, "latestProduction")
            ? Reflect.callStatic(versions, "latestProduction")
            : Reflect.callStatic(versions, "latest");
    }

    /** As UnifiedLog asks for it: a Compression, before 3.8 a CompressionType. */
    static Object targetFor(LogConfig topic, CompressionType found) {
        if (COMPRESSION != null)
            return Reflect.callStatic(BrokerCompressionType.class, "targetCompression",
                Reflect.get(topic, "compression"), found);
        Object type = Reflect.callStatic(BrokerCompressionType.class, "forName",
            Reflect.get(topic, "compressionType"));
        return Reflect.call(type, "targetCompressionType", found);
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

    private LogClasses() { }
}
