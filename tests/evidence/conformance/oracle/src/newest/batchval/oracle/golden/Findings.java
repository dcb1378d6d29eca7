package batchval.oracle.golden;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.V2Batch;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.Consumer;

/** L1 to L6: what the log profile finds in a segment of two batches, offsets 0-1 and 2-3. */
final class Findings {
    private static final int EPOCH = Samples.LEADER_EPOCH;

    static void write(Golden g) {
        byte[] first = segmentBatch(0, b -> { });
        byte[] good = Bytes.cat(first, segmentBatch(2, b -> { }));
        long position = first.length;
        g.rule("L1", "partial-batch", "log",
            obeys(good),
            breaks(Arrays.copyOf(good, good.length - 1)).finding("L1", position, null),
            new Line("breaks-by-zeros", Bytes.cat(good, new byte[100])).log().finding("L1", good.length, null));
        g.rule("L2", "offsets-going-back", "log",
            obeys(good),
            breaks(Bytes.cat(first, segmentBatch(1, b -> { }))).finding("L2", position, 1L));
        g.rule("L3", "offset-gap", "log",
            obeys(good),
            breaks(Bytes.cat(first, segmentBatch(3, b -> { }))).finding("L3", position, 3L),
            new Line("obeys-if-compacted", Bytes.cat(first, segmentBatch(3, b -> { }))).log().set("compact", true));
        g.rule("L4", "leader-epoch-going-back", "log",
            obeys(good),
            breaks(Bytes.cat(first, segmentBatch(2, b -> b.leaderEpoch = EPOCH - 1))).finding("L4", position, 2L));
        byte[] numbered = segmentBatch(0, b -> b.producer(9, 0, 0));
        g.rule("L5", "sequence-gap", "log",
            obeys(Bytes.cat(numbered, segmentBatch(2, b -> b.producer(9, 0, 2)))),
            breaks(Bytes.cat(numbered, segmentBatch(2, b -> b.producer(9, 0, 3)))).finding("L5", position, 2L));
        g.rule("L6", "lying-index", "log",
            obeys(good).index(entry(2, first.length)),
            breaks(good).index(entry(2, first.length + 1)).finding("L6", position + 1, 2L));
    }

    private static Line obeys(byte[] segment) {
        return new Line("obeys", segment).log();
    }

    private static Line breaks(byte[] segment) {
        return new Line("breaks", segment).log();
    }

    private static byte[] segmentBatch(long baseOffset, Consumer<V2Batch> edit) {
        return Samples.batch(edit.andThen(b -> b.baseOffset = baseOffset));
    }

    /** An entry of an .index file: relative offset and position. */
    private static byte[] entry(int offset, int position) {
        return ByteBuffer.allocate(8).putInt(offset).putInt(position).array();
    }

    private Findings() { }
}
