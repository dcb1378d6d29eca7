package batchval.oracle.golden;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.V2Batch;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.Arrays;

/** Rules 1 to 16: the batch iterator, the produce request, the broker's batch loop. */
final class RequestRules {
    private static final int INVALID_RECORD = 87;
    private static final int CORRUPT_MESSAGE = 2;
    private static final int SMALLEST_SIZE = 14;

    static void write(Golden g) {
        iterator(g);
        request(g);
        loop(g);
    }

    private static Line obeys(byte[] batch) {
        return new Line("obeys", batch);
    }

    private static Line breaks(byte[] batch) {
        return new Line("breaks", batch);
    }

    private static void iterator(Golden g) {
        byte[] good = Samples.batch();
        g.rule("1", "batch-incomplete", "analyze",
            obeys(good).showsValidBytes(good.length).strictAccepts(),
            // the first bytes of a second batch: trimmed in silence, which strict does not let pass
            breaks(Bytes.cat(good, Arrays.copyOf(good, 16))).showsValidBytes(good.length).strictRefuses("S2", INVALID_RECORD));
        g.rule("2", "batch-size-too-small", "analyze",
            obeys(good).strictAccepts(),
            breaks(Samples.batch(b -> b.length = SMALLEST_SIZE - 1)).strictRefuses("2", CORRUPT_MESSAGE));
        g.rule("3", "batch-size-overflow", "analyze",
            obeys(good).strictAccepts(),
            breaks(Samples.batch(b -> b.length = Integer.MAX_VALUE - 11)).strictRefuses("S9", INVALID_RECORD));
        g.rule("4", "magic-unknown", "analyze",
            obeys(good).strictAccepts(),
            breaks(Samples.batch(b -> b.magic = 3)).strictRefuses("4", CORRUPT_MESSAGE));
    }

    private static void request(Golden g) {
        byte[] good = Samples.batch();
        byte[] zstd = Samples.batch(CompressionType.ZSTD, b -> { });
        g.rule("5", "request-without-batch", "request",
            obeys(good).strictAccepts(),
            breaks(new byte[0]).strictRefuses("5", INVALID_RECORD));
        g.rule("6", "request-magic-not-2", "request",
            obeys(good).strictAccepts(),
            breaks(Samples.message(1, 0).build()).set("to_magic", 1).strictRefuses("6", INVALID_RECORD));
        g.rule("7", "request-zstd-too-old", "request",
            obeys(zstd).set("produce_version", 7).strictAccepts(),
            breaks(zstd).set("produce_version", 6).strictRefuses("7", 76));
        g.rule("8", "request-more-than-one-batch", "request",
            obeys(good).strictAccepts(),
            breaks(Bytes.cat(good, good)).strictRefuses("8", INVALID_RECORD));
    }

    private static void loop(Golden g) {
        byte[] good = Samples.batch();
        byte[] next = Samples.batch(b -> b.leaderEpoch = Samples.LEADER_EPOCH + 1);
        g.rule("9", "raft-leader-epoch-differs", "analyze",
            obeys(good).set("origin", "RAFT_LEADER").set("first_offset", 0).strictAccepts(),
            breaks(next).set("origin", "RAFT_LEADER").strictRefuses("9", INVALID_RECORD));
        g.rule("10", "base-offset-not-zero", "analyze",
            obeys(good).strictAccepts(),
            breaks(Samples.batch(b -> b.baseOffset = 1)).strictRefuses("10", INVALID_RECORD));
        g.rule("11", "replica-epoch-ahead", "analyze",
            obeys(good).set("origin", "REPLICATION").set("first_offset", 0)
                .showsValidBytes(good.length).strictAccepts(),
            // skipped, so the append is empty; Kafka accepts that
            breaks(next).set("origin", "REPLICATION").showsValidBytes(0).strictAccepts());
        g.rule("12", "fields-out-of-bounds", "analyze",
            obeys(good).strictAccepts(),
            breaks(stump()).strictRefuses("S9", INVALID_RECORD));
        g.rule("13", "batch-too-large", "analyze",
            obeys(good).set("max_message_bytes", good.length).strictAccepts(),
            breaks(good).set("max_message_bytes", good.length - 1).strictRefuses("13", 10));
        g.rule("14", "crc-mismatch", "analyze",
            obeys(good).strictAccepts(),
            breaks(withLastByteFlipped(good)).strictRefuses("14", CORRUPT_MESSAGE));
        g.rule("15", "codec-id-unknown", "analyze",
            obeys(good).strictAccepts(),
            breaks(Samples.batch(b -> b.attributes = 5)).strictRefuses("S6", 76));
        byte[] second = Samples.batch(b -> b.baseOffset = 1);
        g.rule("16", "offsets-out-of-order", "analyze",
            obeys(Bytes.cat(good, second)).set("origin", "REPLICATION").set("first_offset", 0)
                .strictAccepts(),
            breaks(Bytes.cat(good, good)).set("origin", "REPLICATION").set("first_offset", 0)
                .strictRefuses("S9", INVALID_RECORD));
    }

    /** A batch of magic 2 that ends before its last offset delta does. */
    private static byte[] stump() {
        V2Batch b = Samples.around(CompressionType.NONE, new byte[0]);
        b.length = SMALLEST_SIZE;
        return Arrays.copyOf(b.build(), 12 + SMALLEST_SIZE);
    }

    private static byte[] withLastByteFlipped(byte[] batch) {
        byte[] a = batch.clone();
        a[a.length - 1] ^= 1;
        return a;
    }

    private RequestRules() { }
}
