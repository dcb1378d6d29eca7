package batchval.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.OffsetsOutOfOrderException;
import org.apache.kafka.storage.internals.log.RecordValidationStats;

import java.util.List;

/**
 * What differs between the versions of Kafka in the classes that the oracle calls: here Kafka 4.4.
 */
public final class KafkaClasses {
    /**
     * Whether the length that a record states is checked before its bytes are read
     * (max.decompressed.message.bytes).
     */
    public static final boolean CHECKS_LENGTHS = true;
    /**
     * Whether brokers answer Produce v0 to v2, which may hold several messages of magic 0 and 1
     * (KIP-896).
     */
    public static final boolean ADMITS_PRODUCE_V0 = false;
    /** Whether a real log answers complete appends (AppendStage). */
    public static final boolean HAS_APPEND_STAGE = true;

    /** What LogValidator gave. */
    record Result(long logAppendTimeMs, MemoryRecords validatedRecords, long maxTimestampMs,
                  boolean messageSizeMaybeChanged, RecordValidationStats recordValidationStats) {
        static Result of(LogValidator.ValidationResult r) {
            return new Result(r.logAppendTimeMs(), r.validatedRecords(), r.maxTimestampMs(),
                r.messageSizeMaybeChanged(), r.recordValidationStats());
        }
    }

    public static long maxTimestampMs(LogValidator.ValidationResult result) {
        return result.maxTimestampMs();
    }

    /** LogValidator of Kafka 4.4. */
    static LogValidator validator(MemoryRecords records, TopicPartition partition, Time time,
                                  CompressionType source, Compression target, boolean compact,
                                  byte toMagic, TimestampType timestampType, long beforeMaxMs,
                                  long afterMaxMs, int leaderEpoch, AppendOrigin origin,
                                  int maxRecordBody) {
        return new LogValidator(records, partition, time, source, target, compact, toMagic,
            timestampType, beforeMaxMs, afterMaxMs, leaderEpoch, origin, maxRecordBody);
    }

    /** What UnifiedLog throws where offsets must ascend and do not. */
    static RuntimeException offsetsOutOfOrder(String message) {
        return new OffsetsOutOfOrderException(message);
    }

    /** Batches that were converted down, and how many records. */
    record Converted(MemoryRecords records, int count) { }

    /** Kafka 4 has no old consumers. */
    static Converted downConvert(MemoryRecords records, byte magic, long firstOffset) {
        throw new UnsupportedOperationException("Kafka 4 converts nothing down");
    }

    /** Only what is converted down is compared. */
    static List<Long> readCommitted(MemoryRecords records, List<AbortedTransaction> aborted) {
        throw new UnsupportedOperationException("Kafka 4 converts nothing down");
    }

    private KafkaClasses() { }
}
