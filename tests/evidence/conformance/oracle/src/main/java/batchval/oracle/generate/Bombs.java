package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;
import batchval.oracle.bytes.Varint;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.util.Map;
import java.util.Random;

/** Small batches that decompress to much: one huge record, zeros where records should be, very many smallest records. */
final class Bombs {
    private static final Map<CompressionType, Integer> MIB = Map.of(CompressionType.GZIP, 1024, CompressionType.ZSTD, 1024,
        CompressionType.LZ4, 256, CompressionType.SNAPPY, 32);
    private static final int REBUILT_MIB = 16;
    private static final int MANY = 300_000;
    /** lz4 and gzip of so many tiny records stay below the broker's default limit; snappy's framing too. */
    private static final int LIMIT = 8 << 20;

    /** What stands in the stream. */
    private enum Kind { ONE_RECORD, ZEROS, ONE_RECORD_REBUILT }

    static void make(Pass p) {
        for (CompressionType c : Codec.ALL) {
            if (c == CompressionType.NONE)
                continue;
            for (Kind kind : Kind.values()) {
                int mib = kind == Kind.ONE_RECORD_REBUILT ? REBUILT_MIB : MIB.get(c);
                ObjectNode cfg = Pass.cfg().put("max_message_bytes", LIMIT);
                if (kind == Kind.ONE_RECORD_REBUILT)
                    cfg.put("target", "uncompressed").put("max_record_body", 1 << 20);
                p.addSlow("bomb", 0, cfg, () -> huge(c, kind, mib));
                if (kind == Kind.ONE_RECORD)
                    p.addSlow("bomb", 0, cfg.deepCopy().put("max_record_body", 1 << 20), () -> huge(c, kind, mib));
            }
            for (boolean sequential : new boolean[]{true, false})
                p.addSlow("bomb_many_records", 0, Pass.cfg(), () -> many(c, sequential));
        }
    }

    private static byte[] huge(CompressionType c, Kind kind, int mib) {
        byte[] zeros = new byte[1 << 20];
        int length = mib << 20;
        V2Batch b = Content.good(new Random(1), c, 1);
        b.body = Codec.compress(c, 2, o -> {
            if (kind != Kind.ZEROS)
                o.write(recordUpToValue(length));
            for (int i = 0; i < mib; i++)
                o.write(zeros);
            if (kind != Kind.ZEROS)
                o.write(0);  // no headers
        });
        return b.build();
    }

    private static byte[] recordUpToValue(int valueLength) {
        byte[] stated = Varint.ofInt(valueLength);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        Varint.putInt(o, 4 + stated.length + valueLength + 1);
        o.writeBytes(new byte[]{0, 0, 0, 1});  // attributes, timestamp delta, offset delta, no key
        o.writeBytes(stated);
        return o.toByteArray();
    }

    private static byte[] many(CompressionType c, boolean sequential) {
        V2Batch b = Content.good(new Random(1), c, MANY);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int i = 0; i < MANY; i++) {
            V2Record x = new V2Record();
            x.offsetDelta = sequential ? i : i % 64;
            x.write(o);
        }
        b.body = Codec.compress(c, 2, o.toByteArray());
        return b.build();
    }

    private Bombs() { }
}
