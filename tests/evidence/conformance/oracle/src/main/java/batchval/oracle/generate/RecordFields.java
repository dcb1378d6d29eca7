package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Each field of a magic-2 record alone, wrong, in batches that stay in place and that are rebuilt; wrong numbers of records. */
final class RecordFields {
    interface Apply {
        void to(V2Record x, Random r);
    }

    /** A record's defect. */
    record Edit(String name, Apply apply) { }

    private static final byte[] SIX_BYTES = {(byte) 0x80, (byte) 0x80, (byte) 0x80, (byte) 0x80, (byte) 0x80, 0};
    private static final byte[] ELEVEN_BYTES = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0};
    private static final byte[] FIVE_BYTES_TOP = {(byte) 0xfe, (byte) 0xff, (byte) 0xff, (byte) 0xff, 0x7f};
    static final List<Edit> EDITS = edits();
    private static final int COUNT = 4;

    static void make(Pass p) {
        for (int rep = 0; rep < 2; rep++)
            for (CompressionType c : Codec.ALL)
                for (Edit e : EDITS)
                    for (boolean rebuilt : new boolean[]{false, true})
                        if (rep == 0 || !e.name.contains("_1g"))
                            one(p, rep, c, e, rebuilt);
        for (CompressionType c : Codec.ALL)
            for (String target : new String[]{"producer", "uncompressed", "zstd"})
                for (int real : new int[]{0, 1, 3, 4, 5, 6, 9})
                    realCount(p, c, target, real);
    }

    private static void one(Pass p, int rep, CompressionType c, Edit e, boolean rebuilt) {
        long seed = p.seed("record", c, e.name, rebuilt, rep);
        Random r = new Random(seed);
        int which = rep == 0 ? COUNT - 1 : r.nextInt(COUNT);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int j = 0; j < COUNT; j++) {
            V2Record x = new V2Record();
            x.offsetDelta = j;
            x.key = Content.text(r, 3);
            x.value = Content.text(r, 8);
            if (j == which)
                e.apply.to(x, r);
            x.write(o);
        }
        V2Batch b = Content.good(r, c, COUNT);
        b.body = Codec.compress(c, 2, o.toByteArray());
        ObjectNode cfg = Pass.cfg().put("target", !rebuilt ? "producer" : c == CompressionType.GZIP ? "lz4" : "gzip");
        if (rep == 1)
            cfg.put("max_record_body", 1_000_000);
        p.add("record_" + e.name, seed, cfg, b.build());
    }

    private static void realCount(Pass p, CompressionType c, String target, int real) {
        long seed = p.seed("real_count", c, real, target);
        Random r = new Random(seed);
        V2Batch b = Content.good(r, c, 5);
        b.body = Codec.compress(c, 2, Content.plainBody(r, real));
        p.add("real_count", seed, Pass.cfg().put("target", target), b.build());
        if (real != 5)
            return;
        for (int length : new int[]{1, 2, 40}) {
            byte[] garbage = length == 1 ? new byte[]{0} : Content.text(r, length);
            b.body = Codec.compress(c, 2, Bytes.cat(Content.plainBody(r, 5), garbage));
            p.add("garbage_in_payload", seed, Pass.cfg().put("target", target), b.build());
            b.body = Bytes.cat(Codec.compress(c, 2, Content.plainBody(r, 5)), garbage);
            p.add("garbage_after_stream", seed, Pass.cfg().put("target", target), b.build());
            p.add("garbage_after_batch", seed, Pass.cfg().put("target", target), Bytes.cat(Content.good(r, c, 5).build(), garbage));
        }
    }

    private static void header(V2Record x, byte[] key, byte[] value) {
        x.headers = new byte[][]{key, value};
    }

    private static List<Edit> edits() {
        byte[] a = {'a'};
        byte[] one = {1};
        List<Edit> l = new ArrayList<>();
        l.add(new Edit("body_len_plus1", (x, r) -> x.lengthError = 1));
        l.add(new Edit("body_len_minus1", (x, r) -> x.lengthError = -1));
        l.add(new Edit("body_len_neg", (x, r) -> x.length = -1 - r.nextInt(100)));
        l.add(new Edit("body_len_zero", (x, r) -> x.length = 0));
        l.add(new Edit("body_len_1g", (x, r) -> x.length = 1 << 30));
        l.add(new Edit("body_len_16m", (x, r) -> x.length = 1 << 24));
        l.add(new Edit("body_len_overlong", (x, r) -> x.lengthBytes = SIX_BYTES));
        l.add(new Edit("body_len_5b_top", (x, r) -> x.lengthBytes = FIVE_BYTES_TOP));
        l.add(new Edit("body_len_padded", (x, r) -> x.padLength = true));
        l.add(new Edit("ts_overlong", (x, r) -> x.timestampDeltaBytes = ELEVEN_BYTES));
        l.add(new Edit("ts_max", (x, r) -> x.timestampDelta = Long.MAX_VALUE - r.nextInt(9)));
        l.add(new Edit("ts_min", (x, r) -> x.timestampDelta = Long.MIN_VALUE + r.nextInt(9)));
        l.add(new Edit("off_overlong", (x, r) -> x.offsetDeltaBytes = SIX_BYTES));
        l.add(new Edit("off_gap", (x, r) -> x.offsetDelta += 1 + r.nextInt(5)));
        l.add(new Edit("off_dup", (x, r) -> x.offsetDelta = 0));
        l.add(new Edit("off_neg", (x, r) -> x.offsetDelta = -1 - r.nextInt(5)));
        l.add(new Edit("off_max", (x, r) -> x.offsetDelta = Integer.MAX_VALUE));
        l.add(new Edit("key_len_neg2", (x, r) -> {
            x.keyLength = -2 - r.nextInt(5);
            x.key = null;
        }));
        l.add(new Edit("key_len_min", (x, r) -> {
            x.keyLength = Integer.MIN_VALUE;
            x.key = null;
        }));
        l.add(new Edit("key_len_big", (x, r) -> x.keyLength = 1000 + r.nextInt(1000)));
        l.add(new Edit("key_len_max", (x, r) -> x.keyLength = Integer.MAX_VALUE));
        l.add(new Edit("key_overlong", (x, r) -> x.keyLengthBytes = SIX_BYTES));
        l.add(new Edit("val_len_neg2", (x, r) -> {
            x.valueLength = -2 - r.nextInt(5);
            x.value = null;
        }));
        l.add(new Edit("val_len_big", (x, r) -> x.valueLength = 1000 + r.nextInt(1000)));
        l.add(new Edit("val_len_max", (x, r) -> x.valueLength = Integer.MAX_VALUE));
        l.add(new Edit("hdr_count_neg", (x, r) -> x.headersCount = -1 - r.nextInt(3)));
        l.add(new Edit("hdr_count_big", (x, r) -> x.headersCount = 500 + r.nextInt(9)));
        l.add(new Edit("hdr_count_max", (x, r) -> x.headersCount = Integer.MAX_VALUE));
        l.add(new Edit("hdr_count_plus1", (x, r) -> x.headersCount = 1));
        l.add(new Edit("hdr_key_neg", (x, r) -> {
            header(x, new byte[0], one);
            x.headerKeyLength = -1 - r.nextInt(3);
        }));
        l.add(new Edit("hdr_key_big", (x, r) -> {
            header(x, a, one);
            x.headerKeyLength = 900;
        }));
        l.add(new Edit("hdr_val_neg1", (x, r) -> header(x, a, null)));
        l.add(new Edit("hdr_val_neg2", (x, r) -> {
            header(x, a, null);
            x.headerValueLength = -2 - r.nextInt(3);
        }));
        l.add(new Edit("hdr_val_big", (x, r) -> {
            header(x, a, one);
            x.headerValueLength = 900;
        }));
        l.add(new Edit("hdr_key_bad_utf8", (x, r) -> header(x, new byte[]{(byte) 0xff, (byte) 0xfe, (byte) 0xc0}, one)));
        l.add(new Edit("trailing_in_record", (x, r) -> x.trailing = Content.text(r, 1 + r.nextInt(4))));
        l.add(new Edit("attr_bits", (x, r) -> x.attributes = 0x80 | r.nextInt(128)));
        l.add(new Edit("attr_codec_bits", (x, r) -> x.attributes = 1 + r.nextInt(4)));
        return List.copyOf(l);
    }

    private RecordFields() { }
}
