package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.LegacyMessage;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.util.Random;

/**
 * Record lengths that are not the record's ("stated_length"), for brokers that do not check them:
 * negative ones, ones that change the sum of sizes, and those that no Java array can have. Lengths
 * that take gigabytes of heap stand in the first pass only.
 */
final class StatedLengths {
    private static final int CASES = 120;
    /** HotSpot's longest byte array. */
    private static final int LONGEST = Integer.MAX_VALUE - 2;

    static void make(Pass p, boolean first) {
        for (int i = 0; i < CASES; i++)
            for (boolean rebuilt : new boolean[]{false, true}) {
                long seed = p.seed("stated_length", i, rebuilt);
                Random r = new Random(seed);
                one(p, seed, r, rebuilt, length(r));
            }
        CompressionType[] codecs =
            {CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};
        for (CompressionType c : codecs)
            for (int size : new int[]{LONGEST + 1, LONGEST + 2})
                wrapper(p, c, size);
        if (!first)
            return;
        one(p, p.seed("stated_length", LONGEST, true), new Random(LONGEST), true, LONGEST);
        wrapper(p, CompressionType.GZIP, LONGEST);
    }

    private static int length(Random r) {
        return switch (r.nextInt(6)) {
            case 0 -> -1 - r.nextInt(200);
            case 1 -> Integer.MIN_VALUE + r.nextInt(200);
            case 2 -> LONGEST + 1 + r.nextInt(2);
            case 3 -> -1 - r.nextInt(Integer.MAX_VALUE);
            case 4 -> r.nextInt(200);
            default -> 1 << (8 + r.nextInt(12));
        };
    }

    private static void one(Pass p, long seed, Random r, boolean rebuilt, int length) {
        CompressionType c = Codec.ALL[r.nextInt(Codec.ALL.length)];
        int count = 1 + r.nextInt(4);
        int which = r.nextInt(count);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int j = 0; j < count; j++) {
            V2Record x = new V2Record();
            x.offsetDelta = j;
            x.key = Content.text(r, 3);
            x.value = Content.text(r, 8);
            if (j == which)
                x.length = length;
            x.write(o);
        }
        V2Batch b = Content.good(r, c, count);
        b.body = Codec.compress(c, 2, o.toByteArray());
        ObjectNode cfg = Pass.cfg().put("target",
            !rebuilt ? "producer" : c == CompressionType.GZIP ? "lz4" : "gzip");
        if (r.nextInt(6) == 0)
            cfg.put("to_magic", r.nextInt(2));
        p.add("stated_length", seed, cfg, b.build());
    }

    /** A wrapper of magic 1 whose last inner message states this size. */
    private static void wrapper(Pass p, CompressionType c, int size) {
        long seed = p.seed("stated_length", c, size);
        Random r = new Random(seed);
        byte[] inner = new LegacyMessage(1, 0, Content.NOW, Content.text(r, 4), Content.text(r, 9))
            .size(size).build();
        LegacyMessage outer =
            new LegacyMessage(1, 0, Content.NOW, null, Codec.compress(c, 1, inner))
                .attributes(c.id);
        p.add("stated_length", seed, Pass.cfg(), outer.build());
    }

    private StatedLengths() { }
}
