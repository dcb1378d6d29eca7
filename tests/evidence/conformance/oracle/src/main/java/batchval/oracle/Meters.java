package batchval.oracle;

import org.apache.kafka.storage.internals.log.LogValidator;

import java.util.TreeMap;

/** Counts the calls of Kafka's five validator meters. */
public final class Meters implements LogValidator.MetricsRecorder {
    final TreeMap<String, Integer> counts = new TreeMap<>();

    private void mark(String name) {
        counts.merge(name, 1, Integer::sum);
    }

    @Override
    public void recordInvalidMagic() {
        mark("magic");
    }

    @Override
    public void recordInvalidOffset() {
        mark("offset");
    }

    @Override
    public void recordInvalidSequence() {
        mark("sequence");
    }

    @Override
    public void recordInvalidChecksums() {
        mark("checksum");
    }

    @Override
    public void recordNoKeyCompactedTopic() {
        mark("nokey");
    }
}
