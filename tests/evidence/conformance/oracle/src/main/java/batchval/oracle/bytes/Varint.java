package batchval.oracle.bytes;

import java.io.ByteArrayOutputStream;

/** Zig-zag variable-length integers, as magic-2 records have them. */
public final class Varint {
    public static void putInt(ByteArrayOutputStream o, int v) {
        putUnsigned(o, ((v << 1) ^ (v >> 31)) & 0xffffffffL);
    }

    public static void putLong(ByteArrayOutputStream o, long v) {
        putUnsigned(o, (v << 1) ^ (v >> 63));
    }

    public static byte[] ofInt(int v) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        putInt(o, v);
        return o.toByteArray();
    }

    private static void putUnsigned(ByteArrayOutputStream o, long left) {
        long v = left;
        while ((v & ~0x7fL) != 0) {
            o.write((int) (v & 0x7f) | 0x80);
            v >>>= 7;
        }
        o.write((int) v);
    }

    private Varint() { }
}
