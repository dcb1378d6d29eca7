package batchval.oracle;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Stream;

/**
 * One UnifiedLog, used for one append after another. Before each append it is an empty log that
 * starts at the case's first offset: no records, no leader epochs, no producers. Not for several
 * threads.
 *
 * Its configuration is the case's, with three settings that no case has: segments of 1 GiB; no
 * entries in the offset index; no transaction verification, as if the coordinator had confirmed
 * every transaction.
 */
final class RealLog {
    private static final String SEGMENT_BYTES = Integer.toString(1 << 30);
    private static final String INDEX_BYTES = "4096";
    private static final String NO_INDEX_ENTRIES = Integer.toString(Integer.MAX_VALUE);
    private static final int TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    /**
     * Transaction markers come with the version of their transaction; for the first marker of a
     * producer all are alike.
     */
    private static final short MARKER_VERSION = 2;
    private static final int CONFIGURATIONS = 4096;
    private static final Path MEMORY = Path.of("/dev/shm");

    private final Clock clock = new Clock();
    private final Map<Object, LogConfig> configurations = new HashMap<>();
    private final UnifiedLog log;
    private boolean clean = true;

    RealLog() {
        try {
            Path folder = Files.isWritable(MEMORY) ? Files.createTempDirectory(MEMORY, "oracle")
                : Files.createTempDirectory("oracle");
            Runtime.getRuntime().addShutdownHook(new Thread(() -> delete(folder)));
            Path partition = Files.createDirectory(folder.resolve("t-0"));
            log = UnifiedLog.create(partition.toFile(), configuration(Settings.of(Json.object())),
                0, 0, new AtOnce(), new BrokerTopicStats(), clock, TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false),
                PRODUCER_EXPIRATION_MS,
                new LogDirFailureChannel(1), true, Optional.empty());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Appends as a broker does for the case's origin. Returns the bytes of the log; throws what
     * Kafka throws.
     */
    byte[] append(byte[] input, Settings s) throws IOException {
        reset(s);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(input.clone()));
        clean = false;
        Agent.carry(records, s);
        switch (s.origin()) {
            case REPLICATION -> log.appendAsFollower(records, s.leaderEpoch());
            case COORDINATOR -> log.appendAsLeader(records, s.leaderEpoch(),
                AppendOrigin.COORDINATOR, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                MARKER_VERSION);
            default -> log.appendAsLeader(records, s.leaderEpoch(), s.origin());
        }
        return stored();
    }

    /** The log's end offset after an append. */
    long endOffset() {
        return log.logEndOffset();
    }

    private void reset(Settings s) {
        if (!clean || log.logEndOffset() != s.firstOffset())
            log.truncateFullyAndStartAt(s.firstOffset(), Optional.empty());
        clean = true;
        clock.now = s.now();
        log.updateConfig(configuration(s));
    }

    private byte[] stored() throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (LogSegment segment : log.logSegments()) {
            FileRecords records = segment.log();
            ByteBuffer bytes = ByteBuffer.allocate(records.sizeInBytes());
            records.readInto(bytes, 0);
            all.write(bytes.array(), 0, bytes.limit());
        }
        return all.toByteArray();
    }

    private LogConfig configuration(Settings s) {
        if (configurations.size() >= CONFIGURATIONS)
            configurations.clear();
        Map<String, String> topic = new HashMap<>();
        topic.put("max.message.bytes", Integer.toString(s.maxMessageBytes()));
        topic.put("max.decompressed.message.bytes", Integer.toString(s.maxRecordBody()));
        topic.putAll(s.compression());
        topic.put("cleanup.policy", s.compact() ? "compact" : "delete");
        topic.put("message.timestamp.type",
            s.timestampType() == TimestampType.LOG_APPEND_TIME ? "LogAppendTime" : "CreateTime");
        topic.put("message.timestamp.before.max.ms", Long.toString(s.beforeMaxMs()));
        topic.put("message.timestamp.after.max.ms", Long.toString(s.afterMaxMs()));
        topic.put("internal.segment.bytes", SEGMENT_BYTES);
        topic.put("segment.index.bytes", INDEX_BYTES);
        topic.put("index.interval.bytes", NO_INDEX_ENTRIES);
        return configurations.computeIfAbsent(topic, key -> new LogConfig(topic));
    }

    private static void delete(Path folder) {
        try (Stream<Path> all = Files.walk(folder)) {
            all.sorted(Comparator.reverseOrder()).forEach(p -> p.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A clock that stands at the case's now. */
    private static final class Clock implements Time {
        private long now = 0;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) {
        }
    }

    /** Deletes files when it is asked to; whatever else would run later does not run. */
    private static final class AtOnce implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs,
                                           long periodMs) {
            if (name.startsWith("delete"))
                task.run();
            return null;
        }

        @Override
        public void resizeThreadPool(int newSize) {
        }
    }
}
