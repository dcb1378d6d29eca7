package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.Consumer;

/** Each header field of magic 2 alone, at its edges; wrong source codecs; produce versions. */
final class HeaderFields {
    /** A field's wrong (or odd) value. */
    record Edit(String name, Consumer<V2Batch> apply) { }

    static final List<Edit> EDITS = edits();

    static void make(Pass p) {
        for (CompressionType c : Codec.ALL)
            for (int i = 0; i < EDITS.size(); i++) {
                Edit e = EDITS.get(i);
                long seed = p.seed("header", c, e.name, i);
                V2Batch b = Content.good(new Random(seed), c, 5);
                e.apply.accept(b);
                p.add("header_" + e.name, seed, Pass.cfg(), b.build());
                if (e.name.startsWith("count") && c != CompressionType.NONE)
                    p.add("header_" + e.name, seed, Pass.cfg().put("target", "uncompressed"), b.build());
            }
        for (CompressionType c : Codec.ALL)
            for (CompressionType stated : Codec.ALL) {
                long seed = p.seed("source_mismatch", c, stated);
                p.add("source_mismatch", seed, Pass.cfg().put("source", stated.name),
                        Content.good(new Random(seed), c, 3).build());
            }
        for (CompressionType c : Codec.ALL)
            for (int version = 3; version <= 9; version++) {
                long seed = p.seed("produce_version", c, version);
                p.add("produce_version", seed, Pass.cfg().put("produce_version", version), Content.good(new Random(seed), c, 2).build());
                if (c != CompressionType.ZSTD)
                    p.add("produce_version", seed, Pass.cfg().put("produce_version", version).put("to_magic", 1),
                        Built.batch(1, c, Content.records("two", new Random(seed), 1)));
            }
    }

    private static List<Edit> edits() {
        List<Edit> l = new ArrayList<>();
        for (int v : new int[]{-1, 0, 1, 3, 5, 100, Integer.MAX_VALUE, Integer.MIN_VALUE})
            l.add(new Edit("last_offset_delta", b -> b.lastOffsetDelta = v));
        int[] counts = {0, -1, 1, 3, 4, 6, 7, 1_000_000, Integer.MAX_VALUE, Integer.MIN_VALUE};
        for (int v : counts)
            l.add(new Edit("count", b -> b.count = v));
        for (int v : counts)
            l.add(new Edit("count_and_delta", b -> b.count(v)));
        for (long v : new long[]{1, -1, 42, Long.MAX_VALUE, Long.MIN_VALUE})
            l.add(new Edit("base_offset", b -> b.baseOffset = v));
        for (int v : new int[]{5, 6, 7})
            l.add(new Edit("codec_id", b -> b.attributes = (b.attributes & ~7) | v));
        for (int v : new int[]{8, 16, 32, 64, 128, 256, 512, 0x4000, 0x8000, 48, 0x18, 0xff80})
            l.add(new Edit("attr_bits", b -> b.attributes |= v));
        l.add(new Edit("pid_no_seq", b -> b.producer(9, 0, -1)));
        l.add(new Edit("pid_no_seq", b -> b.producer(9, 0, Integer.MIN_VALUE)));
        l.add(new Edit("pid_ok", b -> b.producer(0, 0, 0)));
        l.add(new Edit("pid_ok", b -> b.producer(9, -1, Integer.MAX_VALUE)));
        l.add(new Edit("seq_no_pid", b -> b.baseSequence = 3));
        l.add(new Edit("pid_negative", b -> b.producer(-2, -1, -5)));
        l.add(new Edit("txn_no_pid", b -> b.attributes |= 16));
        l.add(new Edit("txn", b -> {
            b.attributes |= 16;
            b.producer(9, 0, 0);
        }));
        for (int v : new int[]{-1, 0, 1, 3, 127, -128})
            l.add(new Edit("magic", b -> b.magic = (byte) v));
        for (long v : new long[]{-1, -2, Long.MIN_VALUE, Long.MAX_VALUE, 0})
            l.add(new Edit("base_ts", b -> b.baseTimestamp = v));
        for (long v : new long[]{-1, 0, Long.MIN_VALUE, Long.MAX_VALUE, Content.NOW})
            l.add(new Edit("max_ts", b -> b.maxTimestamp = v));
        for (int v : new int[]{0, 7, Integer.MIN_VALUE})
            l.add(new Edit("leader_epoch", b -> b.leaderEpoch = v));
        for (long v : new long[]{0, 1, 0xffffffffL})
            l.add(new Edit("crc", b -> b.crc = v));
        for (int v : new int[]{-1, 0, 1, 13, 14, 48, 49, 50, 1 << 20, Integer.MAX_VALUE, Integer.MIN_VALUE, Integer.MAX_VALUE - 11})
            l.add(new Edit("length", b -> b.length = v));
        return List.copyOf(l);
    }

    private HeaderFields() { }
}
