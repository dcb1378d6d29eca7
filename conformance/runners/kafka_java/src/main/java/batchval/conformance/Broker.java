package batchval.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;

/**
 * Asks ProduceRequest.validateRecords, the checksum of each batch, and LogValidator. UnifiedLog,
 * which asks more questions before LogValidator, is not asked.
 */
final class Broker {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    /** Returns null, or why Kafka does not ask LogValidator about the append. */
    static String append(byte[] bytes, JsonNode topic, JsonNode append) {
        AppendOrigin origin = AppendOrigin.valueOf(append.get("origin").asText());
        if (origin == AppendOrigin.REPLICATION || origin == AppendOrigin.RAFT_LEADER)
            return "LogValidator is not asked about appends of " + origin;
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        if (origin == AppendOrigin.CLIENT)
            ProduceRequest.validateRecords((short) append.get("produce_version").asInt(), records);
        CompressionType codec = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.compressionType() != CompressionType.NONE)
                codec = batch.compressionType();
        }
        if (records.batches().iterator().hasNext())  // else UnifiedLog appends nothing
            validate(records, codec, config(topic), append, origin);
        return null;
    }

    private static LogConfig config(JsonNode topic) {
        Map<String, Object> keys = new HashMap<>();
        topic.fields().forEachRemaining(key -> keys.put(key.getKey(), key.getValue().asText()));
        return new LogConfig(keys);
    }

    private static void validate(MemoryRecords records, CompressionType codec, LogConfig config,
                                 JsonNode append, AppendOrigin origin) {
        new LogValidator(records, PARTITION, clock(append.get("now_ms").asLong()), codec,
            BrokerCompressionType.targetCompression(config.compression, codec), config.compact,
            RecordBatch.CURRENT_MAGIC_VALUE, config.messageTimestampType,
            config.messageTimestampBeforeMaxMs,
            config.messageTimestampAfterMaxMs, append.get("leader_epoch").asInt(), origin,
            config.maxDecompressedMessageBytes())
            .validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(append.get("first_offset").asLong()), meters(),
                BufferSupplier.NO_CACHING);
    }

    private static LogValidator.MetricsRecorder meters() {
        return (LogValidator.MetricsRecorder) Proxy.newProxyInstance(Broker.class.getClassLoader(),
            new Class<?>[]{LogValidator.MetricsRecorder.class}, (proxy, method, args) -> null);
    }

    /** A clock that stands still. */
    private static Time clock(long now) {
        return (Time) Proxy.newProxyInstance(Broker.class.getClassLoader(),
                new Class<?>[]{Time.class},
            (proxy, method, args) -> switch (method.getName()) {
                case "milliseconds", "hiResClockMs" -> now;
                case "nanoseconds" -> 0L;
                default -> method.invoke(Time.SYSTEM, args);
            });
    }

    private Broker() { }
}
