package batchval.oracle;

import org.apache.kafka.clients.consumer.internals.ReadCommitted;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.RecordValidationStats;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

import java.util.List;

/**
 * What differs between the versions of Kafka in the classes that the oracle calls: here Kafka 3.9.
 */
public final class KafkaClasses {
    /**
     * Whether the length that a record states is checked before its bytes are read
     * (max.decompressed.message.bytes).
     */
    public static final boolean CHECKS_LENGTHS = false;
    /**
     * Whether brokers answer Produce v0 to v2, which may hold several messages of magic 0 and 1
     * (KIP-896).
     */
    public static final boolean ADMITS_PRODUCE_V0 = true;
    /** Whether a real log answers complete appends (AppendStage). */
    public static final boolean HAS_APPEND_STAGE = false;

    /** kafka.common.OffsetsOutOfOrderException of the Scala core, which is not an API exception. */
    private static final class OffsetsOutOfOrderException extends RuntimeException {
        OffsetsOutOfOrderException(String message) {
            super(message);
        }
    }

    /** What LogValidator gave. */
    record Result(long logAppendTimeMs, MemoryRecords validatedRecords, long maxTimestampMs,
                  boolean messageSizeMaybeChanged, RecordValidationStats recordValidationStats) {
        static Result of(LogValidator.ValidationResult r) {
            return new Result(r.logAppendTimeMs, r.validatedRecords, r.maxTimestampMs,
                r.messageSizeMaybeChanged, r.recordValidationStats);
        }
    }

    public static long maxTimestampMs(LogValidator.ValidationResult result) {
        return result.maxTimestampMs;
    }

    /**
     * LogValidator of Kafka 3.9. It does not limit a record's size. The inter-broker protocol is
     * the newest of 3.9, which admits zstd (rule 20).
     */
    static LogValidator validator(MemoryRecords records, TopicPartition partition, Time time,
                                  CompressionType source, Compression target, boolean compact,
                                  byte toMagic, TimestampType timestampType, long beforeMaxMs,
                                  long afterMaxMs, int leaderEpoch, AppendOrigin origin,
                                  int maxRecordBody) {
        return new LogValidator(records, partition, time, source, target, compact, toMagic,
            timestampType, beforeMaxMs, afterMaxMs, leaderEpoch, origin,
            MetadataVersion.LATEST_PRODUCTION);
    }

    /** What UnifiedLog throws where offsets must ascend and do not. */
    static RuntimeException offsetsOutOfOrder(String message) {
        return new OffsetsOutOfOrderException(message);
    }

    /** Batches that were converted down, and how many records. */
    record Converted(MemoryRecords records, int count) { }

    /** What a broker did before it answered Fetch 0 to 3. */
    static Converted downConvert(MemoryRecords records, byte magic, long firstOffset) {
        var converted = records.downConvert(magic, firstOffset, Time.SYSTEM);
        return new Converted(converted.records(),
            converted.recordConversionStats().numRecordsConverted());
    }

    /** The offsets that a consumer with isolation.level=read_committed reads. */
    static List<Long> readCommitted(MemoryRecords records, List<AbortedTransaction> aborted) {
        return ReadCommitted.offsets(records, aborted);
    }

    private KafkaClasses() { }
}
