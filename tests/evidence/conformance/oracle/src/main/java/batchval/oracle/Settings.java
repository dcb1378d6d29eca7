package batchval.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;

import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/** A case's "cfg": what the topic and the broker say, with the corpus' defaults. Times are milliseconds. */
record Settings(long now, long firstOffset, int leaderEpoch, Origin origin, String source,
                Map<String, String> compression, boolean compact,
                byte toMagic, TimestampType timestampType, long beforeMaxMs, long afterMaxMs, int maxMessageBytes,
                int maxRecordBody, short produceVersion, String sender, byte[] tag,
                boolean withoutAppend) {

    static Settings of(JsonNode cfg) {
        return new Settings(cfg.path("now").asLong(0), cfg.path("first_offset").asLong(0), cfg.path("leader_epoch").asInt(0),
            Origin.valueOf(cfg.path("origin").asText("CLIENT")), cfg.path("source").asText("auto"),
            compression(cfg), cfg.path("compact").asBoolean(false),
            (byte) cfg.path("to_magic").asInt(2),
            TimestampType.forName(cfg.path("ts_type").asText("CreateTime")), cfg.path("before_max_ms").asLong(Long.MAX_VALUE),
            cfg.path("after_max_ms").asLong(3_600_000), cfg.path("max_message_bytes").asInt(1_048_588),
            cfg.path("max_record_body").asInt(2_147_483_639),
            (short) cfg.path("produce_version").asInt(9),
            cfg.path("sender").asText(null),
            cfg.has("tag") ? HexFormat.of().parseHex(cfg.get("tag").asText()) : null,
            cfg.path("without_append").asBoolean(false));
    }

    /** The codec that LogValidator gets, or what the batch loop found (null: it refused). */
    CompressionType sourceOr(CompressionType found) {
        return source.equals("auto") ? found : CompressionType.forName(source);
    }

    /**
     * As UnifiedLog asks for it: the topic's levels count where its compression.type names the
     * codec.
     */
    Object targetFor(CompressionType found) {
        return LogClasses.targetFor(compression, found);
    }

    /** The keys compression.*: the target, and the levels that the case names. */
    private static Map<String, String> compression(JsonNode cfg) {
        Map<String, String> keys = new HashMap<>();
        keys.put("compression.type", cfg.path("target").asText("producer"));
        for (String codec : new String[]{"gzip", "lz4", "zstd"})
            if (cfg.has(codec + "_level"))
                keys.put("compression." + codec + ".level", cfg.get(codec + "_level").asText());
        return keys;
    }

    /** UnifiedLog.appendAsFollower passes ignoreRecordSize. */
    boolean ignoresRecordSize() {
        return origin == Origin.REPLICATION;
    }

    /** Offsets must be in order for appendAsFollower, and appendAsLeader by a raft leader. */
    boolean requiresOffsetsInOrder() {
        return origin == Origin.REPLICATION || origin == Origin.RAFT_LEADER;
    }
}
