package batchval.oracle.generate;

import batchval.oracle.bytes.Checksums;
import batchval.oracle.bytes.Codec;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;

/** Cut-off bytes and single flipped bits; "_fixed" families have size and checksum made right again, so that the damage is reached. */
final class Damage {
    private static final int SIZE_FIELD = 8;
    private static final int OVERHEAD = 12;
    private static final int V2_HEADER = 62;
    private static final int LEGACY_HEADER = 36;

    static void make(Pass p) {
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType c : Codec.of(magic)) {
                truncated(p, magic, c);
                for (int rep = 0; rep < (magic == 2 ? 90 : 30); rep++)
                    flipped(p, magic, c, rep);
            }
    }

    private static void truncated(Pass p, int magic, CompressionType c) {
        long seed = p.seed("truncate", magic, c);
        Random r = new Random(seed);
        byte[] b = Built.batch(magic, c, Content.records("two", r, magic));
        int header = magic == 2 ? V2_HEADER : LEGACY_HEADER;
        for (int cut = 0; cut < b.length; cut++) {
            boolean wanted = c == CompressionType.NONE ? cut <= header : cut == 11 || cut == 12 || cut == 16 || cut == 17 || cut == 60 || cut == 61;
            if (!wanted && r.nextInt(12) != 0)
                continue;
            p.add("truncate", seed, Pass.cfg().put("to_magic", magic), Arrays.copyOf(b, cut));
            if (cut > 17 && r.nextBoolean()) {
                byte[] t = Arrays.copyOf(b, cut);
                ByteBuffer.wrap(t).putInt(SIZE_FIELD, cut - OVERHEAD);
                if (magic < 2 || cut > 21)
                    Checksums.fix(magic, t, cut);
                p.add("truncate_fixed", seed, Pass.cfg().put("to_magic", magic), t);
            }
        }
    }

    private static void flipped(Pass p, int magic, CompressionType c, int rep) {
        long seed = p.seed("bitflip", magic, c, rep);
        Random r = new Random(seed);
        byte[] b = Built.batch(magic, c, Content.records(rep % 3 == 0 ? "headers" : "two", r, magic));
        boolean fixed = rep % 6 != 0;
        int end = OVERHEAD + ByteBuffer.wrap(b).getInt(SIZE_FIELD);
        int from = !fixed ? 0 : magic < 2 ? 16 : rep % 6 == 1 ? 21 : 61;
        int bit = from * 8 + r.nextInt((end - from) * 8);
        b[bit / 8] ^= (byte) (1 << (bit % 8));
        if (fixed)
            Checksums.fix(magic, b, end);
        ObjectNode cfg = Pass.cfg().put("to_magic", magic).put("target", rep % 2 == 0 ? "producer" : "gzip").put("max_record_body", 1 << 20);
        p.add(fixed ? "bitflip_fixed" : "bitflip", seed, cfg, b);
    }

    private Damage() { }
}
