package batchval.oracle;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
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
    /** Parameters of the log that may be absent: a topic id and, in 3.5, a RemoteLogManager. */
    private static final int ABSENT = 2;
    private static final int CONFIGURATIONS = 4096;
    private static final Path MEMORY = Path.of("/dev/shm");

    /** VerificationGuard.SENTINEL, "nothing to verify"; before 3.7 that is null. */
    private static final Object GUARD = sentinel();

    private final Clock clock = new Clock(0);
    private final Map<Object, Object> configurations = new HashMap<>();
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
            scheduler(), LogClasses.brokerTopicStats(), clock.time, TRANSACTION_TIMEOUT_MS,
            PRODUCER_EXPIRATION_MS, PRODUCER_EXPIRATION_MS, failures(), true, false, false,
            new ConcurrentHashMap<>()};
        Object[] all = LogClasses.with(newer(), values);
        for (int absent = 0; absent < ABSENT; absent++)
            all = LogClasses.with(LogClasses.absent(), all);
        return Reflect.callStatic(LogClasses.LOG,
            LogClasses.CHECKS_ORDER_AT_ONCE ? "create" : "apply", all);
    }

    private static Object failures() {
        return Reflect.make(Reflect.need(
            "org.apache.kafka.storage.internals.log.LogDirFailureChannel",
            "kafka.server.LogDirFailureChannel"), 1);
    }

    /** What the log of older releases does not take. */
    private static Object[] newer() {
        List<Object> values = new ArrayList<>();
        Class<?> producers = Reflect.find(
            "org.apache.kafka.storage.internals.log.ProducerStateManagerConfig",
            "kafka.log.ProducerStateManagerConfig");
        if (producers != null)
            values.add(Reflect.make(producers, PRODUCER_EXPIRATION_MS, false));
        Class<?> listener = Reflect.find(
            "org.apache.kafka.storage.internals.log.LogOffsetsListener",
            "kafka.log.LogOffsetsListener");
        if (listener != null)
            values.add(Reflect.doingNothing(listener));
        return values.toArray();
    }

    private static Object sentinel() {
        Class<?> guard = Reflect.find("org.apache.kafka.storage.internals.log.VerificationGuard");
        return guard == null ? null : Reflect.getStatic(guard, "SENTINEL");
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
        if (s.origin() == Origin.REPLICATION)
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
        Object[] values = LogClasses.with(LogClasses.requestLocal(), records, s.leaderEpoch(),
            s.origin().kafkas(), LogClasses.latestProtocol());
        if (GUARD != null)
            values = LogClasses.with(values, GUARD);
        return s.origin() == Origin.COORDINATOR ? LogClasses.with(values, MARKER_VERSION) : values;
    }

    /** The log's end offset after an append. */
    long endOffset() {
        return (long) Reflect.call(log, "logEndOffset");
    }

    private void reset(Settings s) {
        if (!clean || endOffset() != s.firstOffset())
            Reflect.call(log, "truncateFullyAndStartAt",
                LogClasses.with(LogClasses.absent(), s.firstOffset()));
        clean = true;
        clock.now = s.now();
        Reflect.call(log, "updateConfig", configuration(s));
    }

    private byte[] stored() throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (Object segment : LogClasses.asJava(Reflect.call(log, "logSegments"))) {
            FileRecords records = (FileRecords) Reflect.call(segment, "log");
            ByteBuffer bytes = ByteBuffer.allocate(records.sizeInBytes());
            records.readInto(bytes, 0);
            all.write(bytes.array(), 0, bytes.limit());
        }
        return all.toByteArray();
    }

    private Object configuration(Settings s) {
        if (configurations.size() >= CONFIGURATIONS)
            configurations.clear();
        Map<String, String> topic = new HashMap<>();
        topic.put("max.message.bytes", Integer.toString(s.maxMessageBytes()));
        topic.put("max.decompressed.message.bytes", Integer.toString(s.maxRecordBody()));
        topic.putAll(s.compression());
        topic.put("cleanup.policy", s.compact() ? "compact" : "delete");
        topic.put("message.timestamp.type",
            s.timestampType() == TimestampType.LOG_APPEND_TIME ? "LogAppendTime" : "CreateTime");
        if (LogClasses.BOUNDS_THE_DIFFERENCE) {
            topic.put("message.timestamp.difference.max.ms", Long.toString(s.beforeMaxMs()));
        } else {
            topic.put("message.timestamp.before.max.ms", Long.toString(s.beforeMaxMs()));
            topic.put("message.timestamp.after.max.ms", Long.toString(s.afterMaxMs()));
        }
        topic.put("segment.bytes", SEGMENT_BYTES);
        topic.put("segment.index.bytes", INDEX_BYTES);
        topic.put("index.interval.bytes", NO_INDEX_ENTRIES);
        return configurations.computeIfAbsent(topic, key -> LogClasses.config(topic));
    }

    private static void delete(Path folder) {
        try (Stream<Path> all = Files.walk(folder)) {
            all.sorted(Comparator.reverseOrder()).forEach(p -> p.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Deletes files when it is asked to; whatever else would run later does not run. */
    private static Object scheduler() {
        Class<?> type = Reflect.need("org.apache.kafka.server.util.Scheduler",
            "kafka.utils.Scheduler");
        return Proxy.newProxyInstance(RealLog.class.getClassLoader(), new Class<?>[]{type},
            (proxy, method, args) -> {
                if (method.isDefault())
                    return InvocationHandler.invokeDefault(proxy, method, args);
                if (method.getName().equals("schedule") && ((String) args[0]).startsWith("delete"))
                    run(args[1]);
                return null;
            });
    }

    /** A Runnable, or a Function0 of Scala before 3.5. */
    private static void run(Object task) {
        if (task instanceof Runnable java)
            java.run();
        else
            Reflect.call(task, "apply");
    }
}
