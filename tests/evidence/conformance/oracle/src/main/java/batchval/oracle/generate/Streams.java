package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.LogClasses;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;

import org.apache.kafka.common.record.internal.CompressionType;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Random;

/** Compressed streams that are cut, doubled, changed, mislabelled, or have odd headers. */
final class Streams {
    private static final int DAMAGES = 12;
    private static final byte[] SKIPPABLE_FRAME = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};

    static void make(Pass p) {
        for (CompressionType c : Codec.ALL) {
            if (c == CompressionType.NONE)
                continue;
            for (String target : new String[]{"producer", "uncompressed"}) {
                for (CompressionType actual : Codec.ALL)
                    if (actual != c)
                        wrongCodec(p, c, actual, target);
                for (int kind = 0; kind < DAMAGES; kind++)
                    damaged(p, c, kind, target);
            }
        }
        headers(p);
    }

    private static void wrongCodec(Pass p, CompressionType c, CompressionType actual, String target) {
        long seed = p.seed("wrong_codec", c, actual, target);
        Random r = new Random(seed);
        V2Batch b = Content.good(r, c, 3);
        b.body = Codec.compress(actual, 2, Content.plainBody(r, 3));
        p.add("wrong_codec", seed, Pass.cfg().put("target", target), b.build());
    }

    private static void damaged(Pass p, CompressionType c, int kind, String target) {
        long seed = p.seed("stream", c, kind, target);
        Random r = new Random(seed);
        byte[] plain = Content.plainBody(r, 40);
        byte[] whole = Codec.compress(c, 2, plain);
        byte[] first = Codec.compress(c, 2, Arrays.copyOf(plain, plain.length / 2));
        byte[] second = Codec.compress(c, 2, Arrays.copyOfRange(plain, plain.length / 2, plain.length));
        V2Batch b = Content.good(r, c, 40);
        b.body = switch (kind) {
            case 0 -> new byte[0];
            case 1 -> Arrays.copyOf(whole, 1);
            case 2 -> Arrays.copyOf(whole, 4);
            case 3 -> Arrays.copyOf(whole, whole.length / 2);
            case 4 -> Arrays.copyOf(whole, whole.length - 1);
            case 5 -> Arrays.copyOf(whole, whole.length - 4);
            case 6 -> Bytes.cat(first, second);  // two members or frames
            case 7 -> Bytes.cat(whole, second);
            case 8 -> flipped(whole, whole.length - 1, 1);
            case 9 -> flipped(whole, whole.length - 6, 1);
            case 10 -> flipped(whole, 0, 1);
            default -> overwritten(whole);
        };
        p.add("stream_damage", seed, Pass.cfg().put("target", target), b.build());
    }

    private static byte[] flipped(byte[] stream, int at, int mask) {
        byte[] t = stream.clone();
        t[at] ^= (byte) mask;
        return t;
    }

    private static byte[] overwritten(byte[] stream) {
        byte[] t = stream.clone();
        for (int i = 0; i < 6; i++)
            t[Math.min(4 + i, t.length - 1)] = (byte) 0xff;
        return t;
    }

    private static void headers(Pass p) {
        Random r = p.random("stream_special");
        byte[] plain = Content.plainBody(r, 5);
        byte[] lz4 = Codec.compress(CompressionType.LZ4, 2, plain);
        byte[] snappy = Codec.compress(CompressionType.SNAPPY, 2, plain);
        byte[] zstd = Codec.compress(CompressionType.ZSTD, 2, plain);
        for (int i = 4; i < 7; i++)
            for (int bit = 0; bit < 8; bit++)
                header(p, r, CompressionType.LZ4, flipped(lz4, i, 1 << bit));
        for (int i = 0; i < 20; i++)
            header(p, r, CompressionType.SNAPPY, flipped(snappy, i, 0x81));
        header(p, r, CompressionType.SNAPPY, LogClasses.snappy(plain));
        for (int i = 0; i < 8; i++)
            header(p, r, CompressionType.ZSTD, flipped(zstd, i, 0x40));
        header(p, r, CompressionType.ZSTD, Bytes.cat(SKIPPABLE_FRAME, zstd));
        header(p, r, CompressionType.ZSTD, Bytes.cat(zstd, SKIPPABLE_FRAME));
        header(p, r, CompressionType.ZSTD, LogClasses.zstd(plain, 19));
        header(p, r, CompressionType.ZSTD, LogClasses.zstd(plain, -5));
        for (int windowLog = 24; windowLog <= 31; windowLog++)
            header(p, r, CompressionType.ZSTD, rawBlock(windowLog, plain));
    }

    /** A zstd frame that asks for a window of 16 MiB to 2 GiB, then one raw block. */
    static byte[] rawBlock(int windowLog, byte[] plain) {
        byte[] header = {0x28, (byte) 0xb5, 0x2f, (byte) 0xfd, 0, (byte) ((windowLog - 10) << 3)};
        byte[] block = {(byte) ((plain.length << 3) | 1), (byte) (plain.length >> 5), (byte) (plain.length >> 13)};
        return Bytes.cat(header, block, plain);
    }

    private static void header(Pass p, Random r, CompressionType c, byte[] body) {
        V2Batch b = Content.good(r, c, 5);
        b.body = body;
        p.add("stream_header", p.seed("stream_special"), Pass.cfg(), b.build());
    }

    private Streams() { }
}
