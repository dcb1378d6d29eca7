package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Built.Producer;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;

import java.util.Random;

/** What Kafka's own builder makes, kept as it is, converted up and down, and recompressed. */
final class Valid {
    private static final String[] TYPES = {"CreateTime", "LogAppendTime"};

    static void make(Pass p) {
        inPlace(p);
        recompressed(p);
        legacy(p);
        down(p);
        legacyRecompressed(p);
    }

    static String target(CompressionType c) {
        return c == CompressionType.NONE ? "uncompressed" : c.name;
    }

    private static void inPlace(Pass p) {
        for (CompressionType c : Codec.ALL)
            for (String shape : Content.SHAPES)
                for (Producer by : Producer.values())
                    for (String type : TYPES) {
                        if (by != Producer.PLAIN && type.equals("LogAppendTime") && !shape.equals("ten"))
                            continue;
                        long seed = p.seed("valid_v2", c, shape, by, type);
                        p.add("valid_v2", seed, Pass.cfg().put("ts_type", type),
                            Built.batch(2, c, 0, Content.records(shape, new Random(seed), 2), by));
                    }
    }

    private static void recompressed(Pass p) {
        for (CompressionType c : Codec.ALL)
            for (CompressionType t : Codec.ALL)
                for (String shape : new String[]{"one", "ten", "headers", "tombstones", "hundred"})
                    for (String type : TYPES) {
                        if (c == t)
                            continue;
                        long seed = p.seed("recompress_v2", c, t, shape, type);
                        p.add("recompress_v2", seed, Pass.cfg().put("ts_type", type).put("target", target(t)),
                            Built.batch(2, c, 0, Content.records(shape, new Random(seed), 2),
                                shape.equals("one") ? Producer.IDEMPOTENT : Producer.PLAIN));
                    }
    }

    private static void legacy(Pass p) {
        for (int magic = 0; magic <= 1; magic++)
            for (CompressionType c : Codec.LEGACY)
                for (String shape : new String[]{"one", "two", "ten", "null_keys", "tombstones", "empty_kv", "no_ts", "hundred"})
                    for (int to = 0; to <= 2; to++)
                        for (String type : TYPES) {
                            if (to == 0 && type.equals("LogAppendTime") && !shape.equals("ten"))
                                continue;
                            long seed = p.seed("legacy", magic, c, shape, to, type);
                            String family = to == magic ? "valid_v" + magic : (to > magic ? "up_v" : "down_v") + magic + "_v" + to;
                            p.add(family, seed, Pass.cfg().put("ts_type", type).put("to_magic", to),
                                Built.batch(magic, c, shape.equals("ten") ? 42 : 0, Content.records(shape, new Random(seed), magic), Producer.PLAIN));
                        }
    }

    private static void down(Pass p) {
        for (CompressionType c : Codec.ALL)
            for (String shape : new String[]{"one", "ten", "headers", "tombstones", "no_ts"})
                for (int to = 0; to <= 1; to++)
                    for (Producer by : Producer.values()) {
                        if (by != Producer.PLAIN && !shape.equals("ten"))
                            continue;
                        long seed = p.seed("down_v2", c, shape, to, by);
                        p.add("down_v2_v" + to, seed, Pass.cfg().put("to_magic", to),
                            Built.batch(2, c, 0, Content.records(shape, new Random(seed), 2), by));
                    }
    }

    private static void legacyRecompressed(Pass p) {
        for (int magic = 0; magic <= 1; magic++)
            for (CompressionType c : Codec.LEGACY)
                for (CompressionType t : Codec.ALL)
                    for (int to = 1; to <= 2; to++) {
                        long seed = p.seed("legacy_recompress", magic, c, t, to);
                        p.add("legacy_recompress", seed, Pass.cfg().put("to_magic", to).put("target", target(t)),
                            Built.batch(magic, c, Content.records("ten", new Random(seed), magic)));
                    }
    }

    private Valid() { }
}
