package batchval.oracle;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

/**
 * The broker's loop over the batches before validation: UnifiedLog.analyzeAndValidateRecords, which
 * is private there. The order of questions is restated here, with the two differences between the
 * releases (LogClasses); each question is asked of Kafka's own MutableRecordBatch.
 */
public final class BatchLoop {
    private final Origin origin;
    private final int leaderEpoch;
    private final int maxMessageBytes;
    private final boolean ignoreRecordSize;
    private final boolean requireOffsetsInOrder;

    /** Bytes of the batches that were read and not skipped; the broker trims what follows them. */
    public int validBytes = 0;
    /** The last codec seen. */
    public CompressionType source = CompressionType.NONE;

    public BatchLoop(Origin origin, int leaderEpoch, int maxMessageBytes, boolean ignoreRecordSize, boolean requireOffsetsInOrder) {
        this.origin = origin;
        this.leaderEpoch = leaderEpoch;
        this.maxMessageBytes = maxMessageBytes;
        this.ignoreRecordSize = ignoreRecordSize;
        this.requireOffsetsInOrder = requireOffsetsInOrder;
    }

    static BatchLoop of(Settings s) {
        return new BatchLoop(s.origin(), s.leaderEpoch(), s.maxMessageBytes(), s.ignoresRecordSize(), s.requiresOffsetsInOrder());
    }

    /** Throws what the broker throws. */
    public void run(MemoryRecords records) {
        boolean skipRemaining = false;
        boolean inOrder = true;
        long lastOffset = -1;
        for (MutableRecordBatch batch : records.batches()) {
            if (origin == Origin.RAFT_LEADER && batch.partitionLeaderEpoch() != leaderEpoch)
                throw new InvalidRecordException("batch epoch " + batch.partitionLeaderEpoch() + ", the raft leader's is " + leaderEpoch);
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && origin == Origin.CLIENT && batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset " + batch.baseOffset());
            skipRemaining = skipRemaining || isAheadOfReplica(batch);
            if (!skipRemaining) {
                if (lastOffset >= batch.lastOffset())
                    inOrder = false;
                lastOffset = batch.lastOffset();
                look(batch);
            }
            if (LogClasses.CHECKS_ORDER_AT_ONCE)
                checkOrder(inOrder, records);
        }
        checkOrder(inOrder, records);
    }

    private void checkOrder(boolean inOrder, MemoryRecords records) {
        if (requireOffsetsInOrder && !inOrder)
            throw LogClasses.offsetsOutOfOrder("offsets " + offsets(records));
    }

    private void look(MutableRecordBatch batch) {
        int size = batch.sizeInBytes();
        if (!ignoreRecordSize && size > maxMessageBytes)
            throw new RecordTooLargeException(size + " bytes, max.message.bytes is " + maxMessageBytes);
        if (!batch.isValid())
            throw new CorruptRecordException("stored crc " + batch.checksum());
        batch.maxTimestamp();
        validBytes += size;
        CompressionType codec = CompressionType.forId(batch.compressionType().id);
        if (codec != CompressionType.NONE)
            source = codec;
    }

    /** UnifiedLog.hasHigherPartitionLeaderEpoch. */
    private boolean isAheadOfReplica(RecordBatch batch) {
        return LogClasses.DROPS_NEWER_EPOCHS && origin == Origin.REPLICATION
            && batch.partitionLeaderEpoch() != RecordBatch.NO_PARTITION_LEADER_EPOCH
            && batch.partitionLeaderEpoch() > leaderEpoch;
    }

    /** The message names every record's offset: Kafka parses all records for it, and what fails there is the answer. */
    private static String offsets(MemoryRecords records) {
        return StreamSupport.stream(records.records().spliterator(), false).map(Record::offset).map(String::valueOf)
            .collect(Collectors.joining(","));
    }
}
