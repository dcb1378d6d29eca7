package batchval.oracle.bench;

import batchval.oracle.BatchLoop;
import batchval.oracle.KafkaClasses;
import batchval.oracle.Meters;
import batchval.oracle.Validation;

import com.sun.management.OperatingSystemMXBean;
import com.sun.management.ThreadMXBean;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;
import org.apache.kafka.storage.internals.log.AppendOrigin;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.locks.LockSupport;

/**
 * paced WAY: what the produce requests of a file cost this process at a fixed pace, one thread
 * judging.
 *
 * <p>A file of requests: for each, batches:4 content:4 (bytes of its records, uncompressed), then
 * length:4 a batch, then the batches one after the other; big-endian. Reads lines "FILE
 * BYTES_PER_SECOND SECONDS" (0: as fast as it goes) and answers each with a line of JSON: content
 * fed, wall time, CPU time of the process (collector and JIT with it) and of the thread.
 */
public final class PacedCommand {
    private static final long LEAST_SLEEP_NS = 1_000_000;

    private record Request(ByteBuffer[] batches, long content) { }

    /** What is asked of each batch once the broker's batch loop, with its CRC, has passed it. */
    private enum Way { VALIDATOR, FULL, SKIP, NONE }

    private final Way way;
    private final BufferSupplier buffers = BufferSupplier.create();
    private final Meters meters = new Meters();
    private Path loaded;
    private List<Request> requests;
    private int next = 0;
    private long seen = 0;

    private PacedCommand(Way way) {
        this.way = way;
    }

    public static void run(String way) throws IOException {
        PacedCommand command = new PacedCommand(Way.valueOf(way.toUpperCase(Locale.ROOT)));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] asked = line.split(" ");
            System.out.println(command.feed(Path.of(asked[0]), Double.parseDouble(asked[1]), Double.parseDouble(asked[2])));
        }
    }

    private String feed(Path file, double bytesPerSecond, double seconds) throws IOException {
        if (!file.equals(loaded)) {
            requests = read(file);
            loaded = file;
            next = 0;
        }
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long me = Thread.currentThread().getId();
        long process = system.getProcessCpuTime(), thread = threads.getCurrentThreadCpuTime();
        long allocated = threads.getThreadAllocatedBytes(me), collected = collectorMs();
        long start = System.nanoTime(), end = start + (long) (seconds * 1e9), content = 0, batches = 0;
        for (long now = start; now < end; now = System.nanoTime()) {
            long due = bytesPerSecond == 0 ? now : start + (long) (content / bytesPerSecond * 1e9);
            if (due > now) {
                LockSupport.parkNanos(Math.min(Math.max(due - now, LEAST_SLEEP_NS), end - now));
                continue;
            }
            Request request = requests.get(next);
            next = (next + 1) % requests.size();
            judge(request);
            content += request.content();
            batches += request.batches().length;
        }
        long wall = System.nanoTime() - start;
        thread = threads.getCurrentThreadCpuTime() - thread;
        process = system.getProcessCpuTime() - process;
        allocated = threads.getThreadAllocatedBytes(me) - allocated;
        return String.format(Locale.ROOT,
            "{\"content\": %d, \"batches\": %d, \"wall_ns\": %d, \"cpu_ns\": %d, \"thread_ns\": %d, \"allocated\": %d, \"gc_ms\": %d, \"seen\": %d}",
            content, batches, wall, process, thread, allocated, collectorMs() - collected, seen);
    }

    private void judge(Request request) {
        if (way == Way.NONE)
            return;
        for (ByteBuffer bytes : request.batches()) {
            MemoryRecords records = MemoryRecords.readableRecords(bytes.duplicate());
            BatchLoop loop = new BatchLoop(AppendOrigin.CLIENT, 0, Integer.MAX_VALUE, false, false);
            loop.run(records);
            if (way == Way.VALIDATOR) {
                CompressionType codec = loop.source;
                seen += KafkaClasses.maxTimestampMs(Validation.broker(records, codec,
                    Compression.of(codec).build(), RecordBatch.MAGIC_VALUE_V2, meters, buffers));
            } else {
                for (MutableRecordBatch batch : records.batches())
                    look(way == Way.SKIP ? batch.skipKeyValueIterator(buffers) : batch.streamingIterator(buffers));
            }
        }
    }

    /** The facts that validation is after. */
    private void look(CloseableIterator<Record> records) {
        try (records) {
            while (records.hasNext()) {
                Record record = records.next();
                seen += record.offset() + record.timestamp() + (record.hasKey() ? 1 : 0);
            }
        }
    }

    private static List<Request> read(Path file) throws IOException {
        ByteBuffer all = ByteBuffer.wrap(Files.readAllBytes(file));
        List<Request> requests = new ArrayList<>();
        while (all.hasRemaining()) {
            ByteBuffer[] batches = new ByteBuffer[all.getInt()];
            long content = all.getInt();
            int[] lengths = new int[batches.length];
            for (int i = 0; i < lengths.length; i++)
                lengths[i] = all.getInt();
            for (int i = 0; i < lengths.length; i++) {
                batches[i] = all.slice(all.position(), lengths[i]);
                all.position(all.position() + lengths[i]);
            }
            requests.add(new Request(batches, content));
        }
        return requests;
    }

    private static long collectorMs() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(GarbageCollectorMXBean::getCollectionTime).sum();
    }
}
