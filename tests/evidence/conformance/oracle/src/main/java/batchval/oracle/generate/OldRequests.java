package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.LegacyMessage;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.util.Arrays;
import java.util.Random;

/**
 * Produce v0 to v2 ("produce_v0_v2"), which brokers before 4.0 answer: any magic, several messages,
 * no batch, bytes after the last batch.
 */
final class OldRequests {
    private static final int CASES = 240;
    private static final String[] TARGETS =
        {"producer", "producer", "producer", "uncompressed", "gzip", "zstd"};

    static void make(Pass p) {
        for (int i = 0; i < CASES; i++) {
            long seed = p.seed("produce_v0_v2", i);
            Random r = new Random(seed);
            ObjectNode cfg = Pass.cfg().put("produce_version", r.nextInt(3))
                .put("target", TARGETS[r.nextInt(TARGETS.length)])
                .put("compact", r.nextInt(4) == 0)
                .put("ts_type", r.nextInt(4) == 0 ? "LogAppendTime" : "CreateTime");
            p.add("produce_v0_v2", seed, cfg, records(r));
        }
    }

    private static byte[] records(Random r) {
        byte[] batches = new byte[0];
        int magic = r.nextInt(3);
        for (int count = r.nextInt(4); count > 0; count--) {
            if (r.nextInt(8) == 0)
                magic = r.nextInt(3);
            batches = Bytes.cat(batches,
                r.nextInt(6) == 0 && magic < 2 ? odd(r, magic) : batch(r, magic));
        }
        return switch (r.nextInt(8)) {
            case 0 -> Bytes.cat(batches, Content.text(r, 1 + r.nextInt(30)));
            case 1 -> Arrays.copyOf(batches,
                batches.length - Math.min(batches.length, 1 + r.nextInt(5)));
            default -> batches;
        };
    }

    private static byte[] batch(Random r, int magic) {
        CompressionType[] codecs = Codec.of(magic);
        CompressionType codec = r.nextBoolean() ? CompressionType.NONE
            : codecs[r.nextInt(codecs.length)];
        return Built.batch(magic, codec,
            Content.records(r.nextBoolean() ? "one" : "two", r, magic));
    }

    /** One message with a field that is unusual or wrong. */
    private static byte[] odd(Random r, int magic) {
        LegacyMessage m = new LegacyMessage(magic, r.nextInt(3) - 1, Content.NOW,
            r.nextBoolean() ? null : Content.text(r, 4), Content.text(r, 9));
        switch (r.nextInt(5)) {
            case 0 -> m.wrongCrc();
            case 1 -> m.attributes(r.nextInt(256));
            case 2 -> m.keyLength(-2 - r.nextInt(5));
            case 3 -> m.timestamp = Content.NOW + r.nextInt(1 << 30) - (1 << 29);
            default -> m.valueLength(r.nextInt(5000));
        }
        return m.build();
    }

    private OldRequests() { }
}
