package batchval.oracle.bytes;

import java.nio.ByteBuffer;

/** An entry of magic 0 or 1 (offset, size, message) with every field free. Null lengths: as the content is. */
public final class LegacyMessage {
    public static final int OVERHEAD_V0 = 14;
    private static final int ENTRY_OVERHEAD = 12;

    public final int magic;
    public long offset = 0;
    public int attributes = 0;
    public long timestamp = 0;
    public byte[] key = null;
    public byte[] value = null;
    public Integer keyLength = null;
    public Integer valueLength = null;
    public Integer size = null;
    public boolean wrongCrc = false;

    public LegacyMessage(int magic, long offset, long timestamp, byte[] key, byte[] value) {
        this.magic = magic;
        this.offset = offset;
        this.timestamp = timestamp;
        this.key = key;
        this.value = value;
    }

    public LegacyMessage attributes(int bits) {
        attributes = bits;
        return this;
    }

    public LegacyMessage keyLength(int stated) {
        keyLength = stated;
        return this;
    }

    public LegacyMessage valueLength(int stated) {
        valueLength = stated;
        return this;
    }

    public LegacyMessage size(int stated) {
        size = stated;
        return this;
    }

    public LegacyMessage wrongCrc() {
        wrongCrc = true;
        return this;
    }

    public byte[] build() {
        int n = ENTRY_OVERHEAD + 4 + 1 + 1 + (magic == 1 ? 8 : 0) + 4 + length(key) + 4 + length(value);
        ByteBuffer b = ByteBuffer.allocate(n);
        b.putLong(offset).putInt(size != null ? size : n - ENTRY_OVERHEAD).putInt(0).put((byte) magic).put((byte) attributes);
        if (magic == 1)
            b.putLong(timestamp);
        blob(b, key, keyLength);
        blob(b, value, valueLength);
        byte[] a = b.array();
        Checksums.fixLegacy(a, n);
        if (wrongCrc)
            a[ENTRY_OVERHEAD] ^= 0x55;
        return a;
    }

    private static int length(byte[] bytes) {
        return bytes == null ? 0 : bytes.length;
    }

    private static void blob(ByteBuffer b, byte[] bytes, Integer stated) {
        b.putInt(stated != null ? stated : bytes == null ? -1 : bytes.length);
        if (bytes != null)
            b.put(bytes);
    }
}
