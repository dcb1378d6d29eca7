package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.LogClasses;
import batchval.oracle.generate.Content.KeyValue;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

import java.nio.ByteBuffer;
import java.util.List;

/** Batches as Kafka's own MemoryRecordsBuilder makes them. */
public final class Built {
    /** Who sends them. */
    enum Producer { PLAIN, IDEMPOTENT, TRANSACTIONAL }

    private static final long PRODUCER_ID = 4242;
    private static final short PRODUCER_EPOCH = 3;
    private static final int BASE_SEQUENCE = 17;
    private static final int FIRST_SIZE = 1 << 16;

    public static byte[] batch(int magic, CompressionType c, List<KeyValue> records) {
        return batch(magic, c, TimestampType.CREATE_TIME, 0, records, Producer.PLAIN, -1);
    }

    static byte[] batch(int magic, CompressionType c, long baseOffset, List<KeyValue> records, Producer by) {
        return batch(magic, c, TimestampType.CREATE_TIME, baseOffset, records, by, -1);
    }

    static byte[] batch(int magic, CompressionType c, TimestampType type, long baseOffset, List<KeyValue> records, Producer by,
                        int leaderEpoch) {
        boolean has = by != Producer.PLAIN;
        long appendTime = type == TimestampType.LOG_APPEND_TIME ? Content.NOW - 5 : -1;
        try (MemoryRecordsBuilder b = LogClasses.builder(ByteBuffer.allocate(FIRST_SIZE),
            (byte) magic, c, type, baseOffset, appendTime, has ? PRODUCER_ID : -1,
            has ? PRODUCER_EPOCH : -1, has ? BASE_SEQUENCE : -1, by == Producer.TRANSACTIONAL,
            leaderEpoch)) {
            for (KeyValue x : records)
                b.append(x.timestamp(), x.key(), x.value(), x.headers());
            return Bytes.of(b.build().buffer());
        }
    }

    private Built() { }
}
