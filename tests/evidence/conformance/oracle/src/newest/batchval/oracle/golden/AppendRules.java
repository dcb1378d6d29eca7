package batchval.oracle.golden;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.function.Consumer;

/** Rules 41 to 47: what a log asks after validation. */
final class AppendRules {
    private static final int FIRST_OFFSET = 1000;
    private static final int INVALID_RECORD = 87;
    private static final int INVALID_PRODUCER_EPOCH = 47;
    private static final int INVALID_TXN_STATE = 48;
    private static final int TRANSACTION_COORDINATOR_FENCED = 52;
    private static final int CONTROL = 0x20;
    private static final int TRANSACTIONAL = 0x10;

    static void write(Golden g) {
        offsets(g);
        producers(g);
        markers(g);
    }

    private static Line obeys(byte[] batch) {
        return new Line("obeys", batch);
    }

    private static Line breaks(byte[] batch) {
        return new Line("breaks", batch);
    }

    private static Line kept(Line line, String origin) {
        return line.set("origin", origin);
    }

    /** The good batch at an offset of the log, after an edit. */
    private static byte[] at(long offset, Consumer<V2Batch> edit) {
        return Samples.batch(b -> {
            b.baseOffset = offset;
            edit.accept(b);
        });
    }

    private static void offsets(Golden g) {
        byte[] good = at(FIRST_OFFSET, b -> { });
        g.rule("41", "offset-below-log-end", "append",
            kept(obeys(good), "REPLICATION").strictAccepts(),
            kept(breaks(at(FIRST_OFFSET - 1, b -> { })), "REPLICATION")
                .strictRefuses("S9", INVALID_RECORD));
        g.rule("42", "leader-epoch-invalid", "append",
            kept(obeys(at(FIRST_OFFSET, b -> b.leaderEpoch = 0)), "REPLICATION").strictAccepts(),
            kept(breaks(at(FIRST_OFFSET, b -> b.leaderEpoch = -1)), "REPLICATION")
                .strictRefuses("S9", INVALID_RECORD));
        g.rule("47", "offsets-outside-segment", "append",
            kept(obeys(at(FIRST_OFFSET, b -> b.lastOffsetDelta = Integer.MAX_VALUE)), "REPLICATION")
                .strictAccepts(),
            kept(breaks(Bytes.cat(good,
                at(FIRST_OFFSET + 1L, b -> b.lastOffsetDelta = Integer.MAX_VALUE))), "REPLICATION")
                .strictRefuses("S9", INVALID_RECORD));
    }

    private static void producers(Golden g) {
        g.rule("43", "producer-epoch-too-low", "append",
            obeys(Samples.batch(b -> b.producer(9, -1, 0))).strictAccepts(),
            breaks(Samples.batch(b -> b.producer(9, -2, 0)))
                .strictRefuses("43", INVALID_PRODUCER_EPOCH),
            // a later batch of a raft leader's append; a follower takes what its leader took
            kept(new Line("breaks-in-a-second-batch", epochs(3, 2)), "RAFT_LEADER")
                .strictRefuses("43", INVALID_PRODUCER_EPOCH),
            kept(new Line("obeys-as-a-follower", epochs(3, 2)), "REPLICATION").strictAccepts());
        byte[] inside = at(FIRST_OFFSET, b -> b.producer(9, 3, 0).attributes = TRANSACTIONAL);
        byte[] outside = at(FIRST_OFFSET + 3, b -> b.producer(9, 3, 2));
        byte[] end = marker(FIRST_OFFSET + 2, key(0, 1), value(0, 5));
        g.rule("46", "transaction-not-ended", "append",
            kept(obeys(Bytes.cat(inside, end, outside)), "REPLICATION").strictAccepts(),
            kept(breaks(Bytes.cat(inside, outside)), "REPLICATION")
                .strictRefuses("46", INVALID_TXN_STATE));
    }

    private static byte[] epochs(int first, int second) {
        return Bytes.cat(at(FIRST_OFFSET, b -> b.producer(9, first, 0)),
            at(FIRST_OFFSET + 2, b -> b.producer(9, second, 2)));
    }

    private static void markers(Golden g) {
        g.rule("44", "transaction-marker-malformed", "append",
            kept(obeys(marker(0, key(0, 0), value(0, 5))), "COORDINATOR").strictAccepts(),
            kept(breaks(marker(0, key(-1, 0), value(0, 5))), "COORDINATOR")
                .strictRefuses("44", INVALID_RECORD),
            kept(new Line("breaks-with-another-type", marker(0, key(0, 2), value(0, 5))),
                "COORDINATOR")
                .strictRefuses("S9", INVALID_RECORD),
            kept(new Line("breaks-without-an-epoch", marker(0, key(0, 1), new byte[5])),
                "COORDINATOR")
                .strictRefuses("S9", INVALID_RECORD),
            kept(new Line("breaks-as-a-raft-leader", marker(FIRST_OFFSET, key(0, 1), value(0, 5))),
                "RAFT_LEADER")
                .strictRefuses("S9", INVALID_RECORD));
        g.rule("45", "coordinator-epoch-too-low", "append",
            kept(obeys(marker(0, key(0, 1), value(0, -1))), "COORDINATOR").strictAccepts(),
            kept(breaks(marker(0, key(0, 1), value(0, -2))), "COORDINATOR")
                .strictRefuses("45", TRANSACTION_COORDINATOR_FENCED));
    }

    private static byte[] key(int version, int type) {
        return ByteBuffer.allocate(4).putShort((short) version).putShort((short) type).array();
    }

    private static byte[] value(int version, int coordinatorEpoch) {
        return ByteBuffer.allocate(6).putShort((short) version).putInt(coordinatorEpoch).array();
    }

    /** A control batch of producer 9. */
    private static byte[] marker(long offset, byte[] key, byte[] value) {
        V2Record x = new V2Record();
        x.key = key;
        x.value = value;
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        x.write(o);
        V2Batch b = Samples.around(CompressionType.NONE, o.toByteArray()).count(1)
            .timestamps(Samples.NOW, Samples.NOW).producer(9, 3, -1);
        b.attributes = CONTROL | TRANSACTIONAL;
        b.baseOffset = offset;
        return b.build();
    }

    private AppendRules() { }
}
