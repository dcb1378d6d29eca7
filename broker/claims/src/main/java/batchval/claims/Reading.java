package batchval.claims;

import java.nio.ByteBuffer;

/**
 * What a batch and its tag carry.
 *
 * @param claims those that were found, where the kind is CLAIMS, else null
 */
public record Reading(Kind kind, Claims claims) {
    public enum Kind {
        /** The batch carries nothing. */
        NONE,
        /** The claims are malformed, another batch's, or differ from each other. */
        UNBOUND,
        CLAIMS
    }

    private static final Reading NOTHING = new Reading(Kind.NONE, null);
    private static final Reading UNREADABLE = new Reading(Kind.UNBOUND, null);

    /**
     * Read the claims of the batch at the start of a buffer.
     *
     * @param batch at least the 61 bytes of a header, from the buffer's position on
     * @param tag   the bytes of the tagged field; null: there is none
     */
    public static Reading of(ByteBuffer batch, byte[] tag) {
        int at = batch.position();
        int magic = batch.get(at + Batch.MAGIC);
        Reading carried = magic == 2 ? ofPayload(batch, at) : NOTHING;
        if (tag == null || carried.kind == Kind.UNBOUND)
            return carried;
        Tag read = Tag.decode(tag);
        if (magic != 2 || read == null || read.crc() != batch.getInt(at + Batch.CRC))
            return UNREADABLE;
        if (carried.kind == Kind.NONE)
            return new Reading(Kind.CLAIMS, read.claims());
        return carried.claims.differsFrom(read.claims()) ? UNREADABLE : carried;
    }

    private static Reading ofPayload(ByteBuffer batch, int at) {
        int codec = batch.get(at + Batch.ATTRIBUTES + 1) & Batch.CODEC_MASK;
        long size = (long) batch.getInt(at + Batch.LENGTH) + Batch.LOG_OVERHEAD;
        if (size < Batch.RECORDS || size > batch.limit() - at)
            return NOTHING;
        int payload = at + Batch.RECORDS;
        int block = Carriers.findBlock(batch, payload, at + (int) size, codec);
        if (block == Carriers.NONE)
            return NOTHING;
        Claims claims = block == Carriers.UNREADABLE ? null
            : Block.decode(batch, block, Carriers.blockSize(batch, payload, codec));
        return claims == null ? UNREADABLE : new Reading(Kind.CLAIMS, claims);
    }
}
