package batchval.oracle.bytes;

import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;

/** Writes the checksum that a batch or message ought to have. */
public final class Checksums {
    private static final int V2_CRC = 17;
    private static final int V2_ATTRIBUTES = 21;
    private static final int LEGACY_CRC = 12;
    private static final int LEGACY_MAGIC = 16;

    /** CRC32C over everything from the attributes of the magic-2 batch that fills the array up to end. */
    public static void fixV2(byte[] a, int end) {
        CRC32C crc = new CRC32C();
        crc.update(a, V2_ATTRIBUTES, end - V2_ATTRIBUTES);
        ByteBuffer.wrap(a).putInt(V2_CRC, (int) crc.getValue());
    }

    /** CRC32 over everything from the magic of the first message of magic 0 or 1. */
    public static void fixLegacy(byte[] a, int end) {
        CRC32 crc = new CRC32();
        crc.update(a, LEGACY_MAGIC, end - LEGACY_MAGIC);
        ByteBuffer.wrap(a).putInt(LEGACY_CRC, (int) crc.getValue());
    }

    /** Whichever the magic asks for. */
    public static void fix(int magic, byte[] a, int end) {
        if (magic == 2)
            fixV2(a, end);
        else
            fixLegacy(a, end);
    }

    private Checksums() { }
}
