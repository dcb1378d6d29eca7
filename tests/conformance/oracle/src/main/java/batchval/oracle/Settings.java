package batchval.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;

/** A case's "cfg": what the topic and the broker say, with the corpus' defaults. Times are milliseconds. */
record Settings(long now, long firstOffset, int leaderEpoch, AppendOrigin origin, String source, String target, boolean compact,
                byte toMagic, TimestampType timestampType, long beforeMaxMs, long afterMaxMs, int maxMessageBytes,
                int maxRecordBody, short produceVersion) {

    static Settings of(JsonNode cfg) {
        return new Settings(cfg.path("now").asLong(0), cfg.path("first_offset").asLong(0), cfg.path("leader_epoch").asInt(0),
            AppendOrigin.valueOf(cfg.path("origin").asText("CLIENT")), cfg.path("source").asText("auto"),
            cfg.path("target").asText("producer"), cfg.path("compact").asBoolean(false), (byte) cfg.path("to_magic").asInt(2),
            TimestampType.forName(cfg.path("ts_type").asText("CreateTime")), cfg.path("before_max_ms").asLong(Long.MAX_VALUE),
            cfg.path("after_max_ms").asLong(3_600_000), cfg.path("max_message_bytes").asInt(1_048_588),
            cfg.path("max_record_body").asInt(2_147_483_639), (short) cfg.path("produce_version").asInt(9));
    }

    /** The codec LogValidator is told, or what the batch loop found (null: it refused, so there is none). */
    CompressionType sourceOr(CompressionType found) {
        return source.equals("auto") ? found : CompressionType.forName(source);
    }

    /** BrokerCompressionType.targetCompression. */
    CompressionType targetFor(CompressionType found) {
        return switch (target) {
            case "producer" -> found;
            case "uncompressed" -> CompressionType.NONE;
            default -> CompressionType.forName(target);
        };
    }

    /** UnifiedLog.appendAsFollower passes ignoreRecordSize. */
    boolean ignoresRecordSize() {
        return origin == AppendOrigin.REPLICATION;
    }

    /** Whoever does not assign offsets needs them in order: appendAsFollower, and appendAsLeader by a raft leader. */
    boolean requiresOffsetsInOrder() {
        return origin == AppendOrigin.REPLICATION || origin == AppendOrigin.RAFT_LEADER;
    }
}
