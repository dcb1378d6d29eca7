package batchval.oracle.bytes;

import java.nio.ByteBuffer;

/** A batch of magic 2 with every header field free; Kafka's own builder refuses most of what is needed here. */
public final class V2Batch {
    public static final int RECORDS = 61;
    private static final int CRC = 17;
    private static final int LENGTH_OVERHEAD = 12;

    public long baseOffset = 0;
    public int leaderEpoch = -1;
    public byte magic = 2;
    public int attributes = 0;
    public int lastOffsetDelta = 0;
    public long baseTimestamp = 0;
    public long maxTimestamp = 0;
    public long producerId = -1;
    public short producerEpoch = -1;
    public int baseSequence = -1;
    public int count = 1;
    /** Stated instead of the real one where set. */
    public Integer length = null;
    public Long crc = null;
    /** The records, compressed already. */
    public byte[] body = new byte[0];

    public byte[] build() {
        ByteBuffer b = ByteBuffer.allocate(RECORDS + body.length);
        b.putLong(baseOffset).putInt(length != null ? length : RECORDS - LENGTH_OVERHEAD + body.length).putInt(leaderEpoch).put(magic)
            .putInt(0).putShort((short) attributes).putInt(lastOffsetDelta).putLong(baseTimestamp).putLong(maxTimestamp)
            .putLong(producerId).putShort(producerEpoch).putInt(baseSequence).putInt(count).put(body);
        byte[] a = b.array();
        if (crc != null)
            b.putInt(CRC, crc.intValue());
        else
            Checksums.fixV2(a, a.length);
        return a;
    }

    /** Count and last offset delta of as many records. */
    public V2Batch count(int records) {
        count = records;
        lastOffsetDelta = records - 1;
        return this;
    }

    /** Base and max timestamp. */
    public V2Batch timestamps(long base, long max) {
        baseTimestamp = base;
        maxTimestamp = max;
        return this;
    }

    /** The state of an idempotent producer. */
    public V2Batch producer(long id, int epoch, int sequence) {
        producerId = id;
        producerEpoch = (short) epoch;
        baseSequence = sequence;
        return this;
    }
}
