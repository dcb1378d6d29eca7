package batchval.claims;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Claims in front of a compressed payload, where the log keeps them.
 * <pre>
 * zstd   a skippable frame before the first frame   184D2A5B:4 LE size:4 LE "BV" block
 * gzip   a subfield of the first member's header    1F 8B 8 flags:1 mtime:4 xfl:1 os:1 extra
 *        extra, with flags and 4                    size:2 LE (id:2 size:2 LE bytes)*; "BV": block
 * </pre>
 * (RFC 8878, 3.1.2; RFC 1952, 2.3.1.) Kafka and its clients pass over both. A change of a payload's
 * beginning patches the batch's length and its crc by what changed, so that damage elsewhere still
 * shows.
 */
public final class Carriers {
    public static final int SKIPPABLE_MAGIC = 0x184D2A5B;
    /** What a zstd payload gets before the block. */
    public static final int ZSTD_HEADER = 10;
    /** The size of a gzip member's header without an extra field. */
    public static final int GZIP_HEADER = 10;
    /** What a gzip header gets before the block: the sizes of the extra field and its subfield. */
    public static final int GZIP_EXTRA_HEADER = 6;

    static final int NONE = -1;
    static final int UNREADABLE = -2;

    private static final int SKIPPABLE_HEADER = 8;
    private static final int ID_SIZE = 2;
    private static final int EXTRA_HEADER = 2;
    private static final int SUBFIELD_HEADER = 4;
    private static final int FLAGS = 3;
    private static final int FLAG_HEADER_CRC = 2;
    private static final int FLAG_EXTRA = 4;

    // ---- what a producer puts into a payload ---------------------------------------------------

    /** Return the skippable frame that carries a block in front of a zstd payload. */
    public static byte[] zstdFrame(byte[] block) {
        return ByteBuffer.allocate(ZSTD_HEADER + block.length).order(ByteOrder.LITTLE_ENDIAN)
            .putInt(SKIPPABLE_MAGIC).putInt(ID_SIZE + block.length)
            .put((byte) 'B').put((byte) 'V').put(block).array();
    }

    /** Return the extra field that carries a block after a gzip header with FEXTRA set. */
    public static byte[] gzipExtra(byte[] block) {
        return ByteBuffer.allocate(GZIP_EXTRA_HEADER + block.length)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putShort((short) (SUBFIELD_HEADER + block.length)).put((byte) 'B').put((byte) 'V')
            .putShort((short) block.length).put(block).array();
    }

    // ---- reading -------------------------------------------------------------------------------

    /**
     * Return where the block of the payload at[0:end] (absolute) starts, {@link #NONE} or
     * {@link #UNREADABLE}. {@link #blockSize} is its size; the block itself may be malformed.
     */
    static int findBlock(ByteBuffer b, int at, int end, int codec) {
        if (codec == Batch.ZSTD) {
            if (!startsFrame(b, at, end))
                return NONE;
            return claimsFrame(b, at, end) == 0 ? UNREADABLE : at + ZSTD_HEADER;
        }
        if (codec != Batch.GZIP || !startsExtra(b, at, end))
            return NONE;
        int size = claimsExtra(b, at, end);
        int first = at + GZIP_HEADER + EXTRA_HEADER;
        if (size == 0 || subfield(b, first, first + size) == 0)
            return UNREADABLE;
        for (int p = first + subfield(b, first, first + size); p < first + size; ) {
            int other = subfield(b, p, first + size);
            if (other == 0 || isId(b, p))
                return UNREADABLE;
            p += other;
        }
        return first + SUBFIELD_HEADER;
    }

    /** Return the size of the block that {@link #findBlock} has found. */
    static int blockSize(ByteBuffer b, int at, int codec) {
        return codec == Batch.ZSTD ? intLE(b, at + 4) - ID_SIZE
            : shortLE(b, at + GZIP_HEADER + EXTRA_HEADER + ID_SIZE);
    }

    private static int shortLE(ByteBuffer b, int at) {
        return b.get(at) & 0xFF | (b.get(at + 1) & 0xFF) << 8;
    }

    private static int intLE(ByteBuffer b, int at) {
        return shortLE(b, at) | shortLE(b, at + 2) << 16;
    }

    private static boolean isId(ByteBuffer b, int at) {
        return b.get(at) == 'B' && b.get(at + 1) == 'V';
    }

    /** Return whether a zstd payload starts with the frame of claims, whole or not. */
    private static boolean startsFrame(ByteBuffer b, int at, int end) {
        return end - at >= ZSTD_HEADER && intLE(b, at) == SKIPPABLE_MAGIC
            && Integer.compareUnsigned(intLE(b, at + 4), ID_SIZE) >= 0
            && isId(b, at + SKIPPABLE_HEADER);
    }

    /** Return the size of the frame of claims at the start of a zstd payload; 0: not whole. */
    private static int claimsFrame(ByteBuffer b, int at, int end) {
        if (!startsFrame(b, at, end))
            return 0;
        long size = Integer.toUnsignedLong(intLE(b, at + 4));
        return size <= end - at - SKIPPABLE_HEADER ? (int) (SKIPPABLE_HEADER + size) : 0;
    }

    private static boolean hasGzipHeader(ByteBuffer b, int at, int end) {
        return end - at >= GZIP_HEADER && b.get(at) == 0x1F && b.get(at + 1) == (byte) 0x8B
            && b.get(at + 2) == 8;
    }

    /** Return whether claims stand first in the extra field of a gzip payload, whole or not. */
    private static boolean startsExtra(ByteBuffer b, int at, int end) {
        return hasGzipHeader(b, at, end) && (b.get(at + FLAGS) & FLAG_EXTRA) != 0
            && end - at >= GZIP_HEADER + EXTRA_HEADER + ID_SIZE
            && shortLE(b, at + GZIP_HEADER) >= ID_SIZE && isId(b, at + GZIP_HEADER + EXTRA_HEADER);
    }

    /** Return the size of an extra field with claims that may be changed; 0: there is none. */
    private static int claimsExtra(ByteBuffer b, int at, int end) {
        if (!startsExtra(b, at, end) || (b.get(at + FLAGS) & FLAG_HEADER_CRC) != 0)
            return 0;
        int size = shortLE(b, at + GZIP_HEADER);
        return size <= end - at - GZIP_HEADER - EXTRA_HEADER ? size : 0;
    }

    /** Return the size of the subfield at {@code at}; 0: it is not whole. */
    private static int subfield(ByteBuffer b, int at, int end) {
        if (end - at < SUBFIELD_HEADER)
            return 0;
        int size = SUBFIELD_HEADER + shortLE(b, at + ID_SIZE);
        return size <= end - at ? size : 0;
    }

    // ---- changing a batch ----------------------------------------------------------------------

    /**
     * Return a batch of magic 2 with claims in its payload, or null where the payload takes none:
     * the codec is neither zstd nor gzip, the gzip header has an extra field or a checksum already,
     * or the claims are of version 1.
     */
    public static byte[] attach(byte[] batch, Claims claims) {
        int codec = batch[Batch.ATTRIBUTES + 1] & Batch.CODEC_MASK;
        if (claims.version() == 1)
            return null;
        if (codec == Batch.ZSTD)
            return replace(batch, Batch.RECORDS, 0, zstdFrame(Block.encode(claims)), 0, 0);
        ByteBuffer b = ByteBuffer.wrap(batch);
        if (codec != Batch.GZIP || !hasGzipHeader(b, Batch.RECORDS, batch.length)
            || (batch[Batch.RECORDS + FLAGS] & (FLAG_EXTRA | FLAG_HEADER_CRC)) != 0)
            return null;
        return replace(batch, Batch.RECORDS + GZIP_HEADER, 0, gzipExtra(Block.encode(claims)),
            FLAG_EXTRA, 0);
    }

    /**
     * Return the batch without the claims in its payload, readable or not; the same array where it
     * carries none.
     */
    public static byte[] strip(byte[] batch) {
        ByteBuffer b = ByteBuffer.wrap(batch);
        int end = batch.length;
        if (end < Batch.RECORDS || batch[Batch.MAGIC] != 2
            || b.getInt(Batch.LENGTH) != end - Batch.LOG_OVERHEAD)
            return batch;
        int codec = batch[Batch.ATTRIBUTES + 1] & Batch.CODEC_MASK;
        if (codec == Batch.ZSTD) {
            int at = Batch.RECORDS;
            for (int size = claimsFrame(b, at, end); size != 0; size = claimsFrame(b, at, end))
                at += size;
            return at == Batch.RECORDS ? batch
                : replace(batch, Batch.RECORDS, at - Batch.RECORDS, new byte[0], 0, 0);
        }
        int extra = codec == Batch.GZIP ? claimsExtra(b, Batch.RECORDS, end) : 0;
        if (extra == 0)
            return batch;
        int first = Batch.RECORDS + GZIP_HEADER + EXTRA_HEADER;
        int gone = claimsSubfields(b, first, first + extra);
        if (gone == extra)
            return replace(batch, Batch.RECORDS + GZIP_HEADER, EXTRA_HEADER + extra, new byte[0],
                0, FLAG_EXTRA);
        int left = extra - gone;
        return replace(batch, Batch.RECORDS + GZIP_HEADER, EXTRA_HEADER + gone,
            new byte[] {(byte) left, (byte) (left >> 8)}, 0, 0);
    }

    /** Return the size of all subfields with claims at the start; all where one is not whole. */
    private static int claimsSubfields(ByteBuffer b, int first, int end) {
        int at = first;
        while (end - at >= ID_SIZE && isId(b, at)) {
            int size = subfield(b, at, end);
            if (size == 0)
                return end - first;
            at += size;
        }
        return at - first;
    }

    /**
     * Return the batch with {@code by} in place of {@code gone} bytes at {@code at}, with gzip
     * flags set and cleared, its length and crc patched.
     */
    private static byte[] replace(byte[] batch, int at, int gone, byte[] by, int set, int clear) {
        int tail = batch.length - at - gone;
        byte[] to = Arrays.copyOf(batch, at + by.length + tail);
        System.arraycopy(by, 0, to, at, by.length);
        System.arraycopy(batch, at + gone, to, at + by.length, tail);
        if (set != 0 || clear != 0)
            to[Batch.RECORDS + FLAGS] = (byte) (to[Batch.RECORDS + FLAGS] & ~clear | set);
        ByteBuffer header = ByteBuffer.wrap(to);
        header.putInt(Batch.LENGTH, to.length - Batch.LOG_OVERHEAD);
        header.putInt(Batch.CRC, Crc32c.ofOtherHead(header.getInt(Batch.CRC),
            batch, Batch.ATTRIBUTES, at + gone, to, Batch.ATTRIBUTES, at + by.length, tail));
        return to;
    }

    private Carriers() { }
}
