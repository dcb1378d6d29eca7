package batchval.oracle;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** sha256 of bytes, and of what records say whatever their compressed bytes are. */
final class Digest {
    private final MessageDigest sha256;

    private Digest() {
        try {
            sha256 = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    static String ofBytes(byte[] bytes) {
        Digest d = new Digest();
        d.sha256.update(bytes);
        return d.hex();
    }

    /** Offset i64, timestamp i64, key, value, header count i32, headers; byte strings as i32 length (-1 null) and bytes. */
    static String ofRecords(MemoryRecords records) {
        Digest d = new Digest();
        for (RecordBatch batch : records.batches())
            for (Record r : batch)
                d.put(r);
        return d.hex();
    }

    private void put(Record r) {
        sha256.update(ByteBuffer.allocate(16).putLong(r.offset()).putLong(r.timestamp()).flip());
        put(r.key());
        put(r.value());
        put(r.headers().length);
        for (Header h : r.headers()) {
            put(ByteBuffer.wrap(h.key().getBytes(StandardCharsets.UTF_8)));
            put(h.value() == null ? null : ByteBuffer.wrap(h.value()));
        }
    }

    private void put(int v) {
        sha256.update(ByteBuffer.allocate(4).putInt(v).flip());
    }

    private void put(ByteBuffer blob) {
        put(blob == null ? -1 : blob.remaining());
        if (blob != null)
            sha256.update(blob.duplicate());
    }

    private String hex() {
        return HexFormat.of().formatHex(sha256.digest());
    }
}
