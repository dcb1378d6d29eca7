package batchval.oracle.golden;

import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.LegacyMessage;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/**
 * The good batch from which each golden case is one step away: two records with keys and values.
 * Compressed ones are lz4: its bytes do not depend on the JDK, as gzip's do.
 */
final class Samples {
    static final long NOW = 1_700_000_000_000L;
    static final int LEADER_EPOCH = 7;
    static final int RECORDS = 2;
    static final CompressionType LZ4 = CompressionType.LZ4;

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    static V2Record record(int i) {
        V2Record x = new V2Record();
        x.offsetDelta = i;
        x.timestampDelta = i;
        x.key = bytes("key-" + i);
        x.value = bytes("value-" + i);
        return x;
    }

    /** Records 0 and 1, the second after an edit. */
    static byte[] body(Consumer<V2Record> edit) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        record(0).write(o);
        V2Record second = record(1);
        edit.accept(second);
        second.write(o);
        return o.toByteArray();
    }

    static byte[] body() {
        return body(x -> { });
    }

    /** The header alone, right for records that begin at NOW. */
    static V2Batch around(CompressionType codec, byte[] plain) {
        V2Batch b = new V2Batch().count(RECORDS).timestamps(NOW, NOW + 1);
        b.leaderEpoch = LEADER_EPOCH;
        b.attributes = codec.id;
        b.body = Codec.compress(codec, 2, plain);
        return b;
    }

    /** The good batch after an edit of its header. */
    static byte[] batch(Consumer<V2Batch> edit) {
        V2Batch b = around(CompressionType.NONE, body());
        edit.accept(b);
        return b.build();
    }

    static byte[] batch() {
        return batch(b -> { });
    }

    static byte[] batch(CompressionType codec, Consumer<V2Batch> edit) {
        V2Batch b = around(codec, body());
        edit.accept(b);
        return b.build();
    }

    /** The good batch, whose second record is edited. */
    static byte[] withRecord(CompressionType codec, Consumer<V2Record> edit) {
        return around(codec, body(edit)).build();
    }

    static LegacyMessage message(int magic, int i) {
        return new LegacyMessage(magic, i, NOW + i, bytes("key-" + i), bytes("value-" + i));
    }

    /** An lz4 wrapper of magic 1. */
    static byte[] wrapper(byte[] set) {
        return new LegacyMessage(1, RECORDS - 1, NOW, null, set == null ? null : Codec.compress(LZ4, 1, set)).attributes(LZ4.id).build();
    }

    private Samples() { }
}
