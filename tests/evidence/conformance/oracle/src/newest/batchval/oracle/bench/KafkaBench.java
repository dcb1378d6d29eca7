package batchval.oracle.bench;

import batchval.oracle.BatchLoop;
import batchval.oracle.Meters;
import batchval.oracle.Origin;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.infra.Blackhole;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;

/** What Kafka's own code needs for one batch: the bytes of a file vMAGIC-CODEC-RECORDS-VALUESIZE.bin. Average time in ns. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class KafkaBench {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    @Param({"."})
    public String folder;
    @Param({"v2-none-100-100.bin"})
    public String file;

    private ByteBuffer bytes;
    private byte magic;
    private CompressionType codec;
    private Compression target;
    private BufferSupplier buffers;
    private final LogValidator.MetricsRecorder meters =
        (LogValidator.MetricsRecorder) new Meters().recorder();

    @Setup
    public void load() throws IOException {
        String[] parts = file.split("-");
        magic = Byte.parseByte(parts[0].substring(1));
        codec = CompressionType.forName(parts[1]);
        target = Compression.of(codec).build();
        bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(folder, file)));
        buffers = BufferSupplier.create();
    }

    private MemoryRecords records() {
        return MemoryRecords.readableRecords(bytes.duplicate());
    }

    /** As a broker calls it for a client's batch of a topic with Kafka's defaults. */
    private LogValidator.ValidationResult validated(MemoryRecords r, byte toMagic) {
        LogValidator validator = new LogValidator(r, PARTITION, Time.SYSTEM, codec, target, false,
            toMagic, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0,
            AppendOrigin.CLIENT, Integer.MAX_VALUE - 8);
        return validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), meters, buffers);
    }

    /** What a broker does before the append: the batch loop with its CRC, then LogValidator. The base offset stays 0, so every call sees the same bytes. */
    @Benchmark
    public Object brokerPath() {
        MemoryRecords r = records();
        new BatchLoop(Origin.CLIENT, 0, Integer.MAX_VALUE, false, false).run(r);
        return validated(r, magic);
    }

    /** LogValidator alone, in place. */
    @Benchmark
    public Object validateInPlace() {
        return validated(records(), magic);
    }

    /** DefaultRecordBatch.isValid of every batch. */
    @Benchmark
    public boolean headerAndCrc() {
        boolean ok = true;
        for (MutableRecordBatch b : records().batches())
            ok &= b.isValid();
        return ok;
    }

    /** Header fields, no CRC, no record. */
    @Benchmark
    public long headerOnly() {
        long x = 0;
        for (MutableRecordBatch b : records().batches())
            x += b.baseOffset() + b.lastOffset() + b.maxTimestamp() + b.producerId() + b.baseSequence() + b.compressionType().id + b.sizeInBytes();
        return x;
    }

    /** Every record as an object, with copies of keys, values and headers. */
    @Benchmark
    public void iterate(Blackhole hole) {
        for (MutableRecordBatch b : records().batches())
            for (Iterator<Record> i = b.iterator(); i.hasNext();)
                hole.consume(i.next());
    }

    /** The same, streaming. */
    @Benchmark
    public void iterateStreaming(Blackhole hole) {
        for (MutableRecordBatch b : records().batches())
            drain(b.streamingIterator(buffers), hole);
    }

    /** Keys, values and headers skipped (KAFKA-8106). */
    @Benchmark
    public void iterateSkip(Blackhole hole) {
        for (MutableRecordBatch b : records().batches())
            drain(b.skipKeyValueIterator(buffers), hole);
    }

    private static void drain(CloseableIterator<Record> records, Blackhole hole) {
        try (records) {
            while (records.hasNext())
                hole.consume(records.next());
        }
    }

    /** Magic 1 to 2 with the same codec, by LogValidator. */
    @Benchmark
    public Object convertTo2() {
        return validated(records(), (byte) 2);
    }
}
