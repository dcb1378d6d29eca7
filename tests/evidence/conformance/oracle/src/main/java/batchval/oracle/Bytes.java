package batchval.oracle;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;

/** Byte arrays out of buffers and of each other. */
public final class Bytes {
    public static byte[] of(ByteBuffer buffer) {
        byte[] a = new byte[buffer.remaining()];
        buffer.duplicate().get(a);
        return a;
    }

    public static byte[] cat(byte[]... parts) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (byte[] part : parts)
            o.writeBytes(part);
        return o.toByteArray();
    }

    private Bytes() { }
}
