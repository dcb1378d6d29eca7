package batchval.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

import java.lang.reflect.Proxy;

/** One call of Kafka's LogValidator.validateMessagesAndAssignOffsets. */
public final class Validation {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    /** What the call gave, and the offset after the last record. */
    record Outcome(KafkaClasses.Result result, long nextOffset) { }

    static Outcome run(MemoryRecords records, CompressionType source, Settings s, LogValidator.MetricsRecorder meters) {
        Agent.carry(records, s);
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(s.firstOffset());
        LogValidator validator = KafkaClasses.validator(records, PARTITION,
            standingStill(s.now()), source, s.targetFor(source), s.compact(), s.toMagic(),
            s.timestampType(), s.beforeMaxMs(), s.afterMaxMs(), s.leaderEpoch(), s.origin(),
            s.maxRecordBody());
        LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(offset, meters, BufferSupplier.NO_CACHING);
        return new Outcome(KafkaClasses.Result.of(result), offset.value);
    }

    /** As a broker calls it for a client's batch of a topic with Kafka's defaults: for timing. */
    public static LogValidator.ValidationResult broker(MemoryRecords records, CompressionType source, Compression target, byte toMagic,
                                                       LogValidator.MetricsRecorder meters, BufferSupplier buffers) {
        LogValidator validator = KafkaClasses.validator(records, PARTITION, Time.SYSTEM, source,
            target, false, toMagic,
            TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT, Integer.MAX_VALUE - 8);
        return validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), meters, buffers);
    }

    /** Kafka's Time with a clock that says what the case says. */
    private static Time standingStill(long now) {
        return (Time) Proxy.newProxyInstance(Validation.class.getClassLoader(), new Class<?>[]{Time.class},
            (proxy, method, args) -> switch (method.getName()) {
                case "milliseconds", "hiResClockMs" -> now;
                case "nanoseconds" -> 0L;
                default -> method.invoke(Time.SYSTEM, args);
            });
    }

    private Validation() { }
}
