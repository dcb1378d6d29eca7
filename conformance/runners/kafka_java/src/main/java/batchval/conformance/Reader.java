package batchval.conformance;

import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

import java.nio.ByteBuffer;

/** Reads batches as the consumer does with check.crcs: each batch, its checksum, each record. */
final class Reader {
    static int records(byte[] bytes) {
        int count = 0;
        boolean batchRead = false;
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batchRead = true;
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2)
                batch.ensureValid();
            try (CloseableIterator<Record> records =
                    batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (records.hasNext()) {
                    read(records.next());
                    count++;
                }
            }
        }
        if (!batchRead)
            throw new KafkaException("no whole batch");  // as FetchCollector does
        return count;
    }

    private static void read(Record record) {
        record.ensureValid();
        record.timestamp();
        record.key();
        record.value();
        record.headers();
    }

    private Reader() { }
}
