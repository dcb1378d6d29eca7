package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Content.KeyValue;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Missing keys for a compacted topic, here and there and next to a wrong timestamp. */
final class Compacted {
    private static final int PATTERNS = 6;

    static void make(Pass p) {
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType c : Codec.of(magic))
                for (int pattern = 0; pattern < PATTERNS; pattern++)
                    for (String target : new String[]{"producer", "lz4"}) {
                        long seed = p.seed("compact", magic, c, pattern, target);
                        Random r = new Random(seed);
                        List<KeyValue> l = new ArrayList<>();
                        for (int j = 0; j < 6; j++) {
                            long ts = pattern == 5 && j == 2 ? Content.NOW + 99_999_999L : Content.NOW;
                            l.add(new KeyValue(ts, key(r, pattern, j), Content.text(r, 6), Content.NO_HEADERS));
                        }
                        p.add("compact_key", seed, Pass.cfg().put("compact", true).put("to_magic", magic).put("target", target), Built.batch(magic, c, l));
                    }
    }

    private static byte[] key(Random r, int pattern, int j) {
        boolean missing = switch (pattern) {
            case 0 -> true;
            case 1 -> j == 0;
            case 2 -> j == 5;
            case 3 -> j % 2 == 0;
            case 5 -> j == 3;
            default -> false;
        };
        return missing ? null : pattern == 4 ? new byte[0] : Content.text(r, 4);
    }

    private Compacted() { }
}
