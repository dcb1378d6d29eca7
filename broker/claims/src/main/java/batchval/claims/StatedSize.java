package batchval.claims;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The decompressed size that a zstd or lz4 frame states. Nobody has checked it. */
public final class StatedSize {
    private static final int LZ4_MAGIC = 0x184D2204;
    private static final int LZ4_CONTENT_SIZE = 8;
    private static final int LZ4 = 3;
    private static final int ZSTD_MAGIC = 0xFD2FB528;
    private static final int[] DICTIONARY_ID = {0, 1, 2, 4};

    /**
     * Return what the first frame of a batch's payload states, unsigned; 0 where none does.
     *
     * @param batch a batch of magic 2, from the buffer's position to its limit
     */
    public static long of(ByteBuffer batch) {
        int codec = batch.get(batch.position() + Batch.ATTRIBUTES + 1) & Batch.CODEC_MASK;
        ByteBuffer b = batch.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        int at = batch.position() + Batch.RECORDS;
        int end = batch.limit();
        if (codec == LZ4)
            return end - at >= 14 && b.getInt(at) == LZ4_MAGIC
                && (b.get(at + 4) & LZ4_CONTENT_SIZE) != 0 ? b.getLong(at + 6) : 0;
        return codec == Batch.ZSTD ? ofZstd(b, at, end) : 0;
    }

    private static long ofZstd(ByteBuffer b, int at, int end) {
        while (end - at >= 8 && (b.getInt(at) & ~0xF) == 0x184D2A50) {
            long size = 8 + Integer.toUnsignedLong(b.getInt(at + 4));
            if (size > end - at)
                return 0;
            at += (int) size;
        }
        if (end - at < 5 || b.getInt(at) != ZSTD_MAGIC)
            return 0;
        int descriptor = b.get(at + 4) & 0xFF;
        boolean single = (descriptor & 0x20) != 0;
        int flag = descriptor >> 6;
        int bytes = flag == 0 ? (single ? 1 : 0) : 1 << flag;
        int p = at + 5 + (single ? 0 : 1) + DICTIONARY_ID[descriptor & 3];
        if (end - p < bytes)
            return 0;
        return switch (bytes) {
            case 1 -> b.get(p) & 0xFF;
            case 2 -> (b.getShort(p) & 0xFFFF) + 256;
            case 4 -> Integer.toUnsignedLong(b.getInt(p));
            case 8 -> b.getLong(p);
            default -> 0;
        };
    }

    private StatedSize() { }
}
