package batchval.oracle.bytes;

import java.io.ByteArrayOutputStream;

/** A magic-2 record with every field free, and lengths that may be stated wrongly. Null: as the content is. */
public final class V2Record {
    public int attributes = 0;
    public long timestampDelta = 0;
    public int offsetDelta = 0;
    public byte[] key = null;
    public byte[] value = null;
    /** key, value, key, value, ... */
    public byte[][] headers = {};
    public Integer length = null;
    /** Added to the real length. */
    public int lengthError = 0;
    public Integer keyLength = null;
    public Integer valueLength = null;
    public Integer headersCount = null;
    public Integer headerKeyLength = null;
    public Integer headerValueLength = null;
    /** Instead of the varint. */
    public byte[] lengthBytes = null;
    public byte[] timestampDeltaBytes = null;
    public byte[] offsetDeltaBytes = null;
    public byte[] keyLengthBytes = null;
    /** Write the length's varint two bytes longer than needed. */
    public boolean padLength = false;
    /** After the headers, inside the record. */
    public byte[] trailing = {};

    public void write(ByteArrayOutputStream o) {
        byte[] fields = fields();
        int stated = length != null ? length : fields.length + lengthError;
        if (lengthBytes != null)
            o.writeBytes(lengthBytes);
        else if (padLength)
            o.writeBytes(padded(Varint.ofInt(stated)));
        else
            Varint.putInt(o, stated);
        o.writeBytes(fields);
    }

    public byte[] toBytes() {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        write(o);
        return o.toByteArray();
    }

    private byte[] fields() {
        ByteArrayOutputStream b = new ByteArrayOutputStream();
        b.write(attributes);
        if (timestampDeltaBytes != null)
            b.writeBytes(timestampDeltaBytes);
        else
            Varint.putLong(b, timestampDelta);
        if (offsetDeltaBytes != null)
            b.writeBytes(offsetDeltaBytes);
        else
            Varint.putInt(b, offsetDelta);
        if (keyLengthBytes != null) {
            b.writeBytes(keyLengthBytes);
            if (key != null)
                b.writeBytes(key);
        } else {
            blob(b, key, keyLength);
        }
        blob(b, value, valueLength);
        Varint.putInt(b, headersCount != null ? headersCount : headers.length / 2);
        for (int i = 0; i < headers.length; i += 2) {
            blob(b, headers[i], headerKeyLength);
            blob(b, headers[i + 1], headerValueLength);
        }
        b.writeBytes(trailing);
        return b.toByteArray();
    }

    private static void blob(ByteArrayOutputStream b, byte[] bytes, Integer stated) {
        Varint.putInt(b, stated != null ? stated : bytes == null ? -1 : bytes.length);
        if (bytes != null)
            b.writeBytes(bytes);
    }

    private static byte[] padded(byte[] varint) {
        byte[] longer = new byte[varint.length + 2];
        for (int i = 0; i < longer.length - 1; i++)
            longer[i] = (byte) ((i < varint.length ? varint[i] : 0) | 0x80);
        return longer;
    }
}
