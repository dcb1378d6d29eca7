package batchval.oracle;

import org.apache.kafka.clients.consumer.internals.ReadCommitted;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.internal.ConvertedRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.Time;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;

/**
 * Converts batches down, as Kafka 3.9 did for Fetch 0 to 3, and reads what others made of them.
 * From standard input to standard output; integers are big-endian.
 *
 *   input   cases to the end: magic:i8 first_offset:i64 size:i32 batches size:i32 theirs
 *           count:i32 (producer:i64 offset:i64)*
 *   output  a case: converted:i32 size:i32 output size:i32 difference count:i32 (offset:i64)*
 *
 * converted is the number of records, -1 where Kafka throws; then output is the exception.
 * difference is empty where theirs has Kafka's batches and records, as Kafka reads both. A size of
 * theirs below 0: nothing is to be read. The offsets are those that a consumer reads of the batches
 * where these transactions were aborted; a count of -1 where it throws.
 */
final class DownConvertCommand {
    private static final int BUFFER = 1 << 16;

    static void run(OutputStream stdout) throws IOException {
        BufferedInputStream stdin = new BufferedInputStream(System.in, BUFFER);
        DataInputStream in = new DataInputStream(stdin);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(stdout, BUFFER));
        while (true) {
            if (stdin.available() == 0)
                out.flush();
            int magic = in.read();
            if (magic < 0)
                break;
            long firstOffset = in.readLong();
            byte[] batches = in.readNBytes(in.readInt());
            int size = in.readInt();
            answer((byte) magic, firstOffset, batches, size < 0 ? null : in.readNBytes(size), out);
            List<AbortedTransaction> aborted = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--)
                aborted.add(new AbortedTransaction().setProducerId(in.readLong())
                    .setFirstOffset(in.readLong()));
            readCommitted(batches, aborted, out);
        }
        out.flush();
    }

    private static void answer(byte magic, long firstOffset, byte[] batches, byte[] theirs,
                               DataOutputStream out) throws IOException {
        ConvertedRecords<? extends Records> converted;
        try {
            converted = readable(batches).downConvert(magic, firstOffset, Time.SYSTEM);
        } catch (Throwable t) {
            out.writeInt(-1);
            write(out, t.toString().getBytes(StandardCharsets.UTF_8));
            write(out, new byte[0]);
            return;
        }
        out.writeInt(converted.recordConversionStats().numRecordsConverted());
        ByteBuffer buffer = ((MemoryRecords) converted.records()).buffer();
        byte[] output = new byte[buffer.remaining()];
        buffer.get(output);
        write(out, output);
        String difference = theirs == null ? "" : difference(readable(output), readable(theirs));
        write(out, difference.getBytes(StandardCharsets.UTF_8));
    }

    private static void readCommitted(byte[] batches, List<AbortedTransaction> aborted,
                                      DataOutputStream out) throws IOException {
        List<Long> offsets;
        try {
            offsets = ReadCommitted.offsets(readable(batches), aborted);
        } catch (Throwable t) {
            out.writeInt(-1);
            return;
        }
        out.writeInt(offsets.size());
        for (long offset : offsets)
            out.writeLong(offset);
    }

    private static void write(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static MemoryRecords readable(byte[] bytes) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    }

    private static String difference(MemoryRecords ours, MemoryRecords theirs) {
        Iterator<String> expected = lines(ours).iterator();
        Iterator<String> found = lines(theirs).iterator();
        while (expected.hasNext() || found.hasNext()) {
            String one = expected.hasNext() ? expected.next() : "the end";
            String other = found.hasNext() ? found.next() : "the end";
            if (!one.equals(other))
                return "Kafka's is " + one + ", theirs " + other;
        }
        return "";
    }

    /** What is there to read, and what Kafka throws where it cannot be read. */
    private static List<String> lines(MemoryRecords records) {
        List<String> lines = new ArrayList<>();
        try {
            for (RecordBatch batch : records.batches()) {
                lines.add(String.format("batch %d %s %s %d %d %b", batch.magic(),
                    batch.compressionType(), batch.timestampType(), batch.lastOffset(),
                    batch.maxTimestamp(), batch.isValid()));
                for (Record record : batch)
                    lines.add(String.format("record %d %d %s %s %b", record.offset(),
                        record.timestamp(), hex(record.key()), hex(record.value()),
                        isValid(record)));
            }
        } catch (Throwable t) {  // SnappyError, for one, is an Error
            lines.add(t.getClass().getName());
        }
        return lines;
    }

    private static boolean isValid(Record record) {
        try {
            record.ensureValid();
            return true;
        } catch (CorruptRecordException e) {
            return false;
        }
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null)
            return "null";
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }

    private DownConvertCommand() { }
}
