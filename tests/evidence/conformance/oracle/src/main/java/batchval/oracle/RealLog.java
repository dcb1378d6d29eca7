package batchval.oracle;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
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

    /** VerificationGuard.SENTINEL, "nothing to verify"; before 3.7 that is null. */
    private static final Object GUARD = sentinel();

    private final Clock clock = new Clock(0);
    private final Map<Object, LogConfig> configurations = new HashMap<>();
    private final Object log;
    private boolean clean = true;

    RealLog() {
        try {
            Path folder = Files.isWritable(MEMORY) ? Files.createTempDirectory(MEMORY, "oracle")
                : Files.createTempDirectory("oracle");
            Runtime.getRuntime().addShutdownHook(new Thread(() -> delete(folder)));
            Path partition = Files.createDirectory(folder.resolve("t-0"));
            log = create(partition);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private Object create(Path partition) {
        // lastShutdownClean, keepPartitionMetadataFile, remoteStorageSystemEnable
        Object[] values = {partition.toFile(), configuration(Settings.of(Json.object())), 0L, 0L,
            new AtOnce(), topicStats(), clock.time, TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false),
            PRODUCER_EXPIRATION_MS, new LogDirFailureChannel(1), true, false, false,
            new ConcurrentHashMap<>(), offsetsListener()};
        return Reflect.callStatic(LogClasses.LOG, LogClasses.CHECKS_ORDER_AT_ONCE ? "create"
            : "apply", with(values, LogClasses.absent()));
    }

    private static Object topicStats() {
        Class<?> stats = Reflect.need("org.apache.kafka.storage.log.metrics.BrokerTopicStats",
            "kafka.server.BrokerTopicStats");
        return Reflect.make(stats, with(LogClasses.absent(), false));
    }

    private static Object offsetsListener() {
        return Reflect.doingNothing(Reflect.need(
            "org.apache.kafka.storage.internals.log.LogOffsetsListener",
            "kafka.log.LogOffsetsListener"));
    }

    private static Object noCaching() {
        Class<?> java = Reflect.find("org.apache.kafka.server.common.RequestLocal");
        return java != null ? Reflect.callStatic(java, "noCaching")
            : Reflect.callStatic(Reflect.need("kafka.server.RequestLocal"), "NoCaching");
    }

    private static Object sentinel() {
        Class<?> guard = Reflect.find("org.apache.kafka.storage.internals.log.VerificationGuard");
        return guard == null ? null : Reflect.getStatic(guard, "SENTINEL");
    }

    private static Object[] with(Object[] values, Object... more) {
        Object[] all = Arrays.copyOf(values, values.length + more.length);
        System.arraycopy(more, 0, all, values.length, more.length);
        return all;
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
        if (s.origin() == AppendOrigin.REPLICATION)
            Reflect.call(log, "appendAsFollower", records, s.leaderEpoch());
        else
            Reflect.call(log, "appendAsLeader", leaderArguments(records, s));
        return stored();
    }

    /**
     * Markers come from a coordinator, with the version of their transaction (since 4.2); the other
     * origins have none to give.
     */
    private static Object[] leaderArguments(MemoryRecords records, Settings s) {
        Object[] values = {records, s.leaderEpoch(), s.origin(), LogClasses.latestProtocol(),
            noCaching()};
        if (GUARD != null)
            values = with(values, GUARD);
        return s.origin() == AppendOrigin.COORDINATOR ? with(values, MARKER_VERSION) : values;
    }

    /** The log's end offset after an append. */
    long endOffset() {
        return (long) Reflect.call(log, "logEndOffset");
    }

    private void reset(Settings s) {
        if (!clean || endOffset() != s.firstOffset())
            Reflect.call(log, "truncateFullyAndStartAt",
                with(LogClasses.absent(), s.firstOffset()));
        clean = true;
        clock.now = s.now();
        Reflect.call(log, "updateConfig", configuration(s));
    }

    private byte[] stored() throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (Object segment : segments()) {
            FileRecords records = (FileRecords) Reflect.call(segment, "log");
            ByteBuffer bytes = ByteBuffer.allocate(records.sizeInBytes());
            records.readInto(bytes, 0);
            all.write(bytes.array(), 0, bytes.limit());
        }
        return all.toByteArray();
    }

    /** A collection of Scala before 3.8. */
    private Iterable<?> segments() {
        Object segments = Reflect.call(log, "logSegments");
        return segments instanceof Iterable<?> all ? all : (Iterable<?>) Reflect.callStatic(
            Reflect.need("scala.jdk.javaapi.CollectionConverters"), "asJava", segments);
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
        topic.put("segment.bytes", SEGMENT_BYTES);
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
