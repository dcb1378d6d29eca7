import batchval.oracle.BatchLoop;
import batchval.oracle.Meters;
import batchval.oracle.Validation;

import com.sun.management.ThreadMXBean;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.storage.internals.log.AppendOrigin;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What a broker of Kafka does with one batch before the append: the batch loop with its CRC, then
 * LogValidator. All cases take turns in one JVM, and the second half of the rounds is measured.
 *
 * <pre>
 * java -cp ORACLE.jar KafkaPaths.java MS ROUNDS NAME=FOLDER/vMAGIC-CODEC-RECORDS-SIZE.bin=CODEC ...
 * NAME \t ns of the thread a batch \t bytes allocated a batch
 * </pre>
 */
public final class KafkaPaths {
    /** The same for each call: the results are kept, so that no call can be left out. */
    private static volatile Object kept;

    /** One batch, and the codec of its topic. */
    private static final class Case {
        final String name;
        final ByteBuffer bytes;
        final byte magic;
        final CompressionType source;
        final Compression target;
        final BufferSupplier buffers = BufferSupplier.create();
        final Meters meters = new Meters();
        final List<Double> times = new ArrayList<>();
        long calls = 0;
        long allocated = 0;

        Case(String text) throws IOException {
            String[] parts = text.split("=");
            String[] words = Path.of(parts[1]).getFileName().toString().split("-");
            name = parts[0];
            bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(parts[1])));
            magic = Byte.parseByte(words[0].substring(1));
            source = CompressionType.forName(words[1]);
            target = Compression.of(CompressionType.forName(parts[2])).build();
        }

        /** The base offset stays 0, so that every call sees the same bytes. */
        Object run() {
            MemoryRecords records = MemoryRecords.readableRecords(bytes.duplicate());
            new BatchLoop(AppendOrigin.CLIENT, 0, Integer.MAX_VALUE, false, false).run(records);
            return Validation.broker(records, source, target, magic, meters, buffers);
        }

        void measure(long nanoseconds, boolean counts, ThreadMXBean threads) {
            long before = threads.getCurrentThreadAllocatedBytes();
            long cpu = threads.getCurrentThreadCpuTime();
            long end = System.nanoTime() + nanoseconds;
            long n = 0;
            do {
                kept = run();
                n++;
            } while (System.nanoTime() < end);
            if (counts) {
                times.add((double) (threads.getCurrentThreadCpuTime() - cpu) / n);
                calls += n;
                allocated += threads.getCurrentThreadAllocatedBytes() - before;
            }
        }

        String line() {
            double[] sorted = times.stream().mapToDouble(Double::doubleValue).sorted().toArray();
            return name + "\t" + sorted[sorted.length / 2] + "\t" + (double) allocated / calls;
        }
    }

    public static void main(String[] arguments) throws IOException {
        long ms = Long.parseLong(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        List<Case> cases = new ArrayList<>();
        for (String text : Arrays.asList(arguments).subList(2, arguments.length))
            cases.add(new Case(text));
        for (int round = 0; round < rounds; round++)
            for (Case one : cases)
                one.measure(ms * 1_000_000, round >= rounds / 2, threads);
        for (Case one : cases)
            System.out.println(one.line());
    }

    private KafkaPaths() { }
}
