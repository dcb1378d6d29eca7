package batchval.claims;

import java.nio.ByteBuffer;

/**
 * The tagged field of PartitionProduceData that carries claims, in Produce v9 and later.
 * <pre>
 * version 1   version:1 = 1, batch_min_timestamp:8 records_number:4 null_keys:1 crc:4
 * version 2   block crc:4
 * </pre>
 *
 * @param crc the batch's own crc, as it stands in its header
 */
public record Tag(Claims claims, int crc) {
    /** The number of the tagged field. */
    public static final int NUMBER = 25206;
    public static final int CRC_BYTES = 4;

    private static final int SIZE_1 = 18;

    /** Return the bytes of the tagged field; the version is that of the claims. */
    public byte[] encode() {
        if (claims.version() == 1)
            return ByteBuffer.allocate(SIZE_1).put((byte) 1).putLong(claims.batchMinTimestamp())
                .putInt(claims.recordsNumber()).put(claims.nullKeys()).putInt(crc).array();
        byte[] block = Block.encode(claims);
        return ByteBuffer.allocate(block.length + CRC_BYTES).put(block).putInt(crc).array();
    }

    /** Return what the bytes of a tagged field state, or null: they are malformed. */
    public static Tag decode(byte[] tag) {
        ByteBuffer from = ByteBuffer.wrap(tag);
        int end = tag.length - CRC_BYTES;
        if (tag.length == SIZE_1 && tag[0] == 1)
            return new Tag(
                Claims.version1(from.getLong(1), from.getInt(9), tag[13]), from.getInt(end));
        Claims claims = end < 0 ? null : Block.decode(from, 0, end);
        return claims == null ? null : new Tag(claims, from.getInt(end));
    }
}
