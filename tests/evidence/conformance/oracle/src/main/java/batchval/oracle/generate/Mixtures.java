package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Checksums;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.LegacyMessage;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;
import batchval.oracle.generate.Built.Producer;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;

/** Good batches under random settings ("random_cfg"), and several defects at once under random settings ("mixed_..."). */
final class Mixtures {
    private static final int GOOD = 500;
    private static final int MIXED = 400;
    private static final String[] TARGETS = {"producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"};

    static void make(Pass p) {
        for (int i = 0; i < GOOD; i++)
            randomSettings(p, i);
        for (int i = 0; i < MIXED; i++) {
            edits(p, i);
            plainBytes(p, i);
            streamBytes(p, i);
            legacy(p, i);
        }
    }

    private static void randomSettings(Pass p, int i) {
        long seed = p.seed("random_cfg", i);
        Random r = new Random(seed);
        int magic = r.nextInt(5) == 0 ? r.nextInt(2) : 2;
        CompressionType c = any(r, Codec.of(magic));
        ObjectNode cfg = settings(r);
        String shape = Content.SHAPES[r.nextInt(Content.SHAPES.length)];
        if (shape.equals("tiny") || shape.equals("varint_edges"))
            shape = "headers";
        p.add("random_cfg", seed, cfg,
            Built.batch(magic, c, 0, Content.records(shape, r, magic), magic == 2 ? any(r, Producer.values()) : Producer.PLAIN));
    }

    private static <T> T any(Random r, T[] of) {
        return of[r.nextInt(of.length)];
    }

    private static ObjectNode settings(Random r) {
        String[] origins = {"CLIENT", "CLIENT", "CLIENT", "COORDINATOR", "REPLICATION"};
        return Pass.cfg().put("to_magic", r.nextInt(6) == 0 ? r.nextInt(3) : 2).put("target", any(r, TARGETS)).put("origin", any(r, origins))
            .put("compact", r.nextInt(3) == 0).put("ts_type", r.nextInt(3) == 0 ? "LogAppendTime" : "CreateTime")
            .put("first_offset", r.nextInt(3) == 0 ? 0 : r.nextLong() >>> 2).put("leader_epoch", r.nextInt(100) - 1)
            .put("before_max_ms", r.nextInt(4) == 0 ? 500 : Long.MAX_VALUE).put("after_max_ms", r.nextInt(4) == 0 ? 0 : 3_600_000);
    }

    /** The same, with limits low enough to be met. */
    private static ObjectNode tightSettings(Random r) {
        ObjectNode cfg = settings(r);
        if (r.nextInt(4) == 0)
            cfg.put("max_record_body", 5 + r.nextInt(100));
        if (r.nextInt(8) == 0)
            cfg.put("max_message_bytes", 60 + r.nextInt(400));
        if (r.nextInt(8) == 0)
            cfg.put("produce_version", 3 + r.nextInt(7));
        if (r.nextInt(8) == 0)
            cfg.put("source", any(r, Codec.ALL).name);
        return cfg;
    }

    /** Up to two wrong header fields and up to two wrong records. */
    private static void edits(Pass p, int i) {
        long seed = p.seed("mixed_edits", i);
        Random r = new Random(seed);
        CompressionType c = any(r, Codec.ALL);
        int count = 1 + r.nextInt(6);
        int wrong = r.nextInt(3);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int j = 0; j < count; j++) {
            V2Record x = new V2Record();
            x.offsetDelta = j;
            x.timestampDelta = r.nextInt(2000) - 1000;
            x.key = r.nextInt(4) == 0 ? null : Content.text(r, r.nextInt(6));
            x.value = r.nextInt(6) == 0 ? null : Content.text(r, r.nextInt(40));
            if (wrong > 0 && r.nextInt(count) <= 1) {
                wrong--;
                RecordFields.EDITS.get(r.nextInt(RecordFields.EDITS.size())).apply().to(x, r);
            }
            x.write(o);
        }
        V2Batch b = new V2Batch().count(count).timestamps(Content.NOW - 900, Content.NOW);
        b.attributes = c.id;
        b.body = Codec.compress(c, 2, o.toByteArray());
        for (int n = r.nextInt(3); n > 0; n--)
            HeaderFields.EDITS.get(r.nextInt(HeaderFields.EDITS.size())).apply().accept(b);
        p.add("mixed_edits", seed, tightSettings(r), b.build());
    }

    /** Some bytes of the records changed before they are compressed. */
    private static void plainBytes(Pass p, int i) {
        long seed = p.seed("mixed_record_bytes", i);
        Random r = new Random(seed);
        CompressionType c = any(r, Codec.ALL);
        int count = 1 + r.nextInt(8);
        byte[] plain = Content.plainBody(r, count);
        spoil(r, plain, 0);
        V2Batch b = Content.good(r, c, count);
        b.body = Codec.compress(c, 2, r.nextInt(6) == 0 ? Arrays.copyOf(plain, r.nextInt(plain.length + 1)) : plain);
        p.add("mixed_record_bytes", seed, tightSettings(r), b.build());
    }

    /** Some bytes of the compressed stream changed, cut, doubled or put in. */
    private static void streamBytes(Pass p, int i) {
        long seed = p.seed("mixed_stream_bytes", i);
        Random r = new Random(seed);
        CompressionType c = Codec.ALL[1 + r.nextInt(Codec.ALL.length - 1)];
        int count = 1 + r.nextInt(60);
        V2Batch b = Content.good(r, c, count);
        byte[] stream = b.body;
        switch (r.nextInt(6)) {
            case 0 -> stream = Arrays.copyOf(stream, r.nextInt(stream.length));
            case 1 -> stream = Bytes.cat(stream, Content.text(r, 1 + r.nextInt(60)));
            case 2 -> stream = Bytes.cat(stream, Codec.compress(c, 2, Content.plainBody(r, 1 + r.nextInt(4))));
            case 3 -> {
                int at = r.nextInt(stream.length);
                byte[] put = new byte[1 + r.nextInt(4)];
                r.nextBytes(put);
                stream = Bytes.cat(Arrays.copyOf(stream, at), put, Arrays.copyOfRange(stream, at, stream.length));
            }
            default -> spoil(r, stream, 0);
        }
        b.body = stream;
        p.add("mixed_stream_bytes", seed, tightSettings(r), b.build());
    }

    /** Wrappers of magic 0 and 1 with random inner messages, of which some bytes are changed. */
    private static void legacy(Pass p, int i) {
        long seed = p.seed("mixed_legacy", i);
        Random r = new Random(seed);
        int magic = r.nextInt(2);
        CompressionType c = any(r, Codec.LEGACY);
        int count = 1 + r.nextInt(4);
        byte[][] inner = new byte[count][];
        for (int j = 0; j < count; j++) {
            LegacyMessage m = Legacy.message(r, r.nextInt(20) == 0 ? 1 - magic : magic, r.nextInt(8) == 0 ? r.nextInt(9) : j);
            if (r.nextInt(8) == 0)
                m.key = null;
            if (r.nextInt(8) == 0)
                m.value = null;
            if (r.nextInt(12) == 0)
                m.attributes(r.nextInt(16));
            if (r.nextInt(10) == 0)
                m.timestamp = Content.NOW - 1000 + r.nextInt(2000);
            inner[j] = m.build();
        }
        byte[] batch;
        if (c == CompressionType.NONE) {
            batch = Bytes.cat(inner);
            if (r.nextInt(2) == 0)
                spoil(r, batch, 0);
        } else {
            byte[] plain = Bytes.cat(inner);
            if (r.nextInt(3) == 0)
                spoil(r, plain, 0);
            byte[] stream = Codec.compress(c, magic, plain);
            if (r.nextInt(4) == 0)
                spoil(r, stream, 0);
            batch = new LegacyMessage(magic, r.nextInt(4) == 0 ? r.nextInt(9) : count - 1, Content.NOW, null, stream).attributes(c.id).build();
        }
        ObjectNode cfg = tightSettings(r).put("to_magic", r.nextInt(3));
        if (r.nextInt(2) == 0)
            Checksums.fixLegacy(batch, Math.min(batch.length, 12 + Math.max(4, ByteBuffer.wrap(batch).getInt(8) & 0xffff)));
        p.add("mixed_legacy", seed, cfg, batch);
    }

    private static void spoil(Random r, byte[] a, int from) {
        if (a.length == from)
            return;
        for (int n = 1 + r.nextInt(3); n > 0; n--) {
            int at = from + r.nextInt(a.length - from);
            a[at] = r.nextBoolean() ? (byte) r.nextInt(256) : (byte) (a[at] ^ (1 << r.nextInt(8)));
        }
    }

    private Mixtures() { }
}
