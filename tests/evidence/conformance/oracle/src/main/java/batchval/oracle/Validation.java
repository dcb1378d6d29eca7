package batchval.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.BufferSupplier;

import java.util.Map;

/** One call of Kafka's LogValidator.validateMessagesAndAssignOffsets, in Scala before 3.5. */
public final class Validation {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final Class<?> JAVA =
        Reflect.find("org.apache.kafka.storage.internals.log.LogValidator");
    private static final Object STATS = JAVA == null ? LogClasses.brokerTopicStats() : null;

    /** What the call gave, and the offset after the last record. */
    record Outcome(LogClasses.Result result, long nextOffset) { }

    static Outcome run(MemoryRecords records, CompressionType source, Settings s, Meters meters) {
        Agent.carry(records, s);
        return JAVA != null ? inJava(records, source, s, meters)
            : inScala(records, source, s, meters);
    }

    private static Outcome inJava(MemoryRecords records, CompressionType source, Settings s,
                                  Meters meters) {
        Object offset = Reflect.callStatic(Reflect.need(
            "org.apache.kafka.common.utils.internals.PrimitiveRef"), "ofLong", s.firstOffset());
        Object validator = Reflect.make(JAVA, records, PARTITION, new Clock(s.now()).time, source,
            s.targetFor(source), s.compact(), s.toMagic(), s.timestampType(), s.beforeMaxMs(),
            s.afterMaxMs(), s.leaderEpoch(), s.origin().kafkas(), s.maxRecordBody(),
            LogClasses.latestProtocol());
        Object result = Reflect.call(validator, "validateMessagesAndAssignOffsets", offset,
            meters.recorder(), BufferSupplier.NO_CACHING);
        return new Outcome(LogClasses.Result.of(result, s.now()), (long) Reflect.get(offset, "value"));
    }

    private static Outcome inScala(MemoryRecords records, CompressionType source, Settings s,
                                   Meters meters) {
        Object offset = Reflect.make(Reflect.need("kafka.common.LongRef"), s.firstOffset());
        Map<String, Long> before = Meters.read(STATS);
        try {
            Object result = Reflect.call(Reflect.module("kafka.log.LogValidator"),
                "validateMessagesAndAssignOffsets", LogClasses.with(LogClasses.requestLocal(),
                    records, PARTITION, offset, new Clock(s.now()).time, s.now(),
                    LogClasses.scalaCodec(source), s.targetFor(source), s.compact(), s.toMagic(),
                    s.timestampType(), s.beforeMaxMs(), s.leaderEpoch(), s.origin().kafkas(),
                    LogClasses.latestProtocol(), STATS));
            return new Outcome(LogClasses.Result.of(result, s.now()),
                (long) Reflect.get(offset, "value"));
        } finally {
            meters.add(before, STATS);
        }
    }

    private Validation() { }
}
