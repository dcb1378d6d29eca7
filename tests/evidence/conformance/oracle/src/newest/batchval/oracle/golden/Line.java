package batchval.oracle.golden;

import batchval.oracle.Answer;
import batchval.oracle.Json;
import batchval.oracle.Kafka;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.HexFormat;

/**
 * One line of a golden file: a case that obeys a rule, or breaks it by the least change. What Kafka
 * says to it is asked; what strict mode and the log profile must say is stated here, from the
 * rule's definition.
 */
final class Line {
    private final String name;
    private final byte[] batch;
    final ObjectNode cfg = Json.object().put("now", Samples.NOW).put("first_offset", 1000).put("leader_epoch", Samples.LEADER_EPOCH);
    private final ObjectNode strict = Json.object();
    private final ObjectNode shows = Json.object();
    private ArrayNode findings = null;
    private byte[] index = null;

    /** name: obeys, breaks, or what else the line is there to show. */
    Line(String name, byte[] batch) {
        this.name = name;
        this.batch = batch;
    }

    Line set(String key, String value) {
        cfg.put(key, value);
        return this;
    }

    Line set(String key, long value) {
        cfg.put(key, value);
        return this;
    }

    Line set(String key, boolean value) {
        cfg.put(key, value);
        return this;
    }

    /** Strict mode only reports this extra. */
    Line reporting(String extra) {
        cfg.putObject("extras").put(extra, "report");
        return this;
    }

    /** Strict mode accepts, with these reports. */
    Line strictAccepts(String... reports) {
        strict.put("ok", true).put("code", 0).putNull("rule");
        ArrayNode listed = strict.putArray("reports");
        for (String r : reports)
            listed.add(r);
        return this;
    }

    Line strictRefuses(String rule, int code) {
        strict.put("ok", false).put("code", code).put("rule", rule);
        strict.putArray("reports");
        return this;
    }

    /** The batch loop's valid bytes, where a rule refuses nothing but takes fewer of them. */
    Line showsValidBytes(int bytes) {
        shows.put("valid_bytes", bytes);
        return this;
    }

    /** The log profile finds nothing but what finding() adds. */
    Line log() {
        findings = Json.MAPPER.createArrayNode();
        return set("origin", "REPLICATION");
    }

    /** The log profile finds this; offset null where no batch can be read. */
    Line finding(String rule, long position, Long offset) {
        findings.add(Json.object().put("rule", rule).put("position", position).put("offset", offset));
        return this;
    }

    /** The segment's .index file. */
    Line index(byte[] entries) {
        index = entries;
        return this;
    }

    /** stage: whose answer in kafka mode must name the rule on the lines that break it. */
    ObjectNode toJson(String id, String slug, String stage) {
        ObjectNode o = Json.object().put("id", slug + "/" + name).put("family", "golden").put("kafka", Kafka.RELEASE);
        o.putObject("rule").put("id", id).put("stage", stage).put("broken", !name.startsWith("obeys"));
        o.put("profile", findings == null ? "produce" : "log");
        o.set("cfg", cfg);
        o.put("batch_hex", HexFormat.of().formatHex(batch));
        if (index != null)
            o.put("index_hex", HexFormat.of().formatHex(index));
        o.set("expect", Answer.to(batch, cfg));
        if (!shows.isEmpty())
            o.set("shows", shows);
        if (findings != null)
            o.set("expect_log", findings);
        else
            o.set("expect_strict", strict);
        return o;
    }
}
