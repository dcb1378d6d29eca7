package batchval.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/** One call of Kafka's LogValidator.validateMessagesAndAssignOffsets. */
public final class Validation {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    /** What the call gave, and the offset after the last record. */
    record Outcome(LogClasses.Result result, long nextOffset) { }

    static Outcome run(MemoryRecords records, CompressionType source, Settings s, LogValidator.MetricsRecorder meters) {
        Agent.carry(records, s);
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(s.firstOffset());
        LogValidator validator = LogClasses.validator(records, PARTITION,
            new Clock(s.now()).time, source, s.targetFor(source), s.compact(), s.toMagic(),
            s.timestampType(), s.beforeMaxMs(), s.afterMaxMs(), s.leaderEpoch(), s.origin(),
            s.maxRecordBody());
        LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(offset, meters, BufferSupplier.NO_CACHING);
        return new Outcome(LogClasses.Result.of(result), offset.value);
    }

    private Validation() { }
}
