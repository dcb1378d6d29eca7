package batchval.oracle;

import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.TreeMap;

/**
 * Counts the calls of Kafka's five validator meters. LogValidator in Scala marks the broker's own
 * meters, of which one counts offsets and sequences; all of them are read here.
 */
public final class Meters {
    private static final Map<String, String> CALLS = Map.of(
        "recordInvalidMagic", "magic",
        "recordInvalidOffset", "offset",
        "recordInvalidSequence", "sequence",
        "recordInvalidChecksums", "checksum",
        "recordNoKeyCompactedTopic", "nokey");
    private static final Map<String, String> BROKERS = Map.of(
        "invalidMagicNumberRecordsPerSec", "magic",
        "invalidOffsetOrSequenceRecordsPerSec", "offset",
        "invalidMessageCrcRecordsPerSec", "checksum",
        "noKeyCompactedTopicRecordsPerSec", "nokey");

    final TreeMap<String, Integer> counts = new TreeMap<>();

    /** Return LogValidator.MetricsRecorder of a release whose LogValidator is in Java. */
    public Object recorder() {
        Class<?> recorder = Reflect.need(
            "org.apache.kafka.storage.internals.log.LogValidator$MetricsRecorder");
        return Proxy.newProxyInstance(Meters.class.getClassLoader(), new Class<?>[]{recorder},
            (proxy, method, args) -> counts.merge(CALLS.get(method.getName()), 1, Integer::sum));
    }

    /** Return the counts of the broker's meters, of BrokerTopicStats in Scala. */
    static Map<String, Long> read(Object brokerTopicStats) {
        Object all = Reflect.call(brokerTopicStats, "allTopicsStats");
        Map<String, Long> counts = new TreeMap<>();
        BROKERS.forEach((meter, name) ->
            counts.put(name, (long) Reflect.call(Reflect.call(all, meter), "count")));
        return counts;
    }

    /** Add what the broker's meters have counted since they were read. */
    void add(Map<String, Long> before, Object brokerTopicStats) {
        read(brokerTopicStats).forEach((name, count) -> {
            if (!count.equals(before.get(name)))
                counts.merge(name, (int) (count - before.get(name)), Integer::sum);
        });
    }
}
