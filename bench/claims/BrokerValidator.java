import batchval.broker.hook.Hooks;
import batchval.oracle.Meters;
import batchval.oracle.Validation;

import com.sun.management.ThreadMXBean;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.BufferSupplier;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * LogValidator with and without believed claims, in one JVM that runs with the agent of broker/.
 * All cases take turns; after the warm-up, each turn is one line.
 *
 * <pre>
 * java -javaagent:AGENT.jar=OPTIONS -cp ORACLE.jar:AGENT.jar BrokerValidator.java MS WARM_UP ROUNDS
 *     CODEC=FILE ...
 * FILE   (length:4 batch length:4 tag)*
 * CODEC \t SENDER \t us of the thread a batch
 * </pre>
 *
 * The sender {@code stock} brings no tag and no claims.
 */
public final class BrokerValidator {
    private static final List<String> SENDERS = List.of("stock", "trust", "audit", "verify");
    /** The results are kept, so that no call can be left out. */
    private static volatile Object kept;

    private record Claimed(ByteBuffer batch, byte[] tag) { }

    private static final class Case {
        final String codec;
        final String sender;
        final List<Claimed> batches;
        final CompressionType source;
        final Compression target;
        final BufferSupplier buffers = BufferSupplier.create();
        final Meters meters = new Meters();
        int next = 0;

        Case(String codec, String sender, List<Claimed> batches) {
            this.codec = codec;
            this.sender = sender;
            this.batches = batches;
            source = CompressionType.forName(codec);
            target = Compression.of(source).build();
        }

        Object run() {
            Claimed one = batches.get(next);
            next = (next + 1) % batches.size();
            MemoryRecords records = MemoryRecords.readableRecords(one.batch.duplicate());
            if (!sender.equals("stock"))
                Hooks.carry(records, one.tag, sender, false, "BENCH");
            return Validation.broker(records, source, target, (byte) 2, meters, buffers);
        }

        double turn(long nanoseconds, ThreadMXBean threads) {
            long cpu = threads.getCurrentThreadCpuTime();
            long end = System.nanoTime() + nanoseconds;
            long n = 0;
            do {
                kept = run();
                n++;
            } while (n < batches.size() || System.nanoTime() < end);
            return (threads.getCurrentThreadCpuTime() - cpu) / 1e3 / n;
        }
    }

    private static List<Claimed> read(String file) throws IOException {
        ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(Path.of(file)));
        List<Claimed> found = new ArrayList<>();
        while (in.hasRemaining())
            found.add(new Claimed(ByteBuffer.wrap(next(in)), next(in)));
        return found;
    }

    private static byte[] next(ByteBuffer in) {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return bytes;
    }

    public static void main(String[] arguments) throws IOException {
        long ms = Long.parseLong(arguments[0]);
        int warmUp = Integer.parseInt(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        List<Case> cases = new ArrayList<>();
        for (String text : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] parts = text.split("=", 2);
            for (String sender : SENDERS)
                cases.add(new Case(parts[0], sender, read(parts[1])));
        }
        for (int round = 0; round < warmUp + rounds; round++)
            for (Case one : cases) {
                double us = one.turn(ms * 1_000_000, threads);
                if (round >= warmUp)
                    System.out.println(one.codec + "\t" + one.sender + "\t" + us);
            }
    }

    private BrokerValidator() { }
}
