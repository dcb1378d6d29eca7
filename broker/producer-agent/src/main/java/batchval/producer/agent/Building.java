package batchval.producer.agent;

import batchval.claims.Block;
import batchval.claims.Carriers;
import batchval.claims.Claims;
import batchval.claims.SchemaIds;
import batchval.claims.SeenIds;
import java.nio.ByteBuffer;

/**
 * What is known of one batch while its builder appends records: a field of the builder, and of the
 * records once they are built.
 *
 * <p>One thread at a time uses it, as Kafka guarantees for the builder itself.
 */
public final class Building {
    /** The header of a batch of magic 2, in bytes. */
    static final int BATCH_OVERHEAD = 61;
    /**
     * Batches with more bytes of records have no claims: brokers and gates decompress 64 MiB at
     * most by default, and claims about a batch over that limit count as a lie.
     */
    static final int MAX_DECOMPRESSED_BYTES = 64 << 20;

    /** Where the carrier starts, from the beginning of the batch, and its bytes; 0: no place. */
    int carrierAt;
    int carrierBytes;
    boolean gzip;
    /** What the batch states, once it is closed; null: nothing. */
    byte[] block;
    boolean counted;

    /** Null: the claims state no schema ids. */
    private final SeenIds seenIds;
    private int begun;
    private int nullKeys;
    private long minTimestamp = Long.MAX_VALUE;
    private int maxSize;

    /** @param schemaIds whether the claims state the schema ids of the values */
    Building(boolean schemaIds) {
        seenIds = schemaIds ? new SeenIds() : null;
    }

    // ---- called from Kafka's own code, for each record -----------------------------------------

    /** Note that a record of magic 2 is about to be written; {@code building} may be null. */
    public static void begin(Building building, ByteBuffer key, ByteBuffer value) {
        if (building == null)
            return;
        building.begun++;
        if (key == null)
            building.nullKeys++;
        if (building.seenIds != null)
            building.seenIds.note(value);
    }

    /** Note a record that was written; {@code size} includes its length field. */
    public static void written(Building building, long timestamp, int size) {
        if (building == null)
            return;
        if (timestamp < building.minTimestamp)
            building.minTimestamp = timestamp;
        if (size > building.maxSize)
            building.maxSize = size;
    }

    /** Return an estimate of a batch's size with the bytes of the claims in its payload. */
    public static int withCarrier(int size, Building building) {
        return building == null ? size : size + building.carrierBytes;
    }

    /** Return a size of compressed records without the bytes of the claims. */
    public static int withoutCarrier(int size, Building building) {
        return building == null ? size : size - building.carrierBytes;
    }

    // ---- the claims ----------------------------------------------------------------------------

    /** Return whether the batch states schema ids, the only further claims that are made here. */
    boolean hasSchemaIds() {
        return block != null && block.length > Block.SMALLEST;
    }

    /** Return the bytes that a block of this size takes in the payload. */
    int carrierSize(int blockSize) {
        return blockSize + (gzip ? Carriers.GZIP_EXTRA_HEADER : Carriers.ZSTD_HEADER);
    }

    /** Return whether the records of the payload carry the claims. */
    boolean isInPayload() {
        return block != null && carrierBytes > 0;
    }

    /**
     * Return the claims of the records so far, or null: none would be honest, or none would be of
     * use.
     *
     * @param records the builder's count; a record whose writing failed makes the two counts differ
     * @param recordBytes the uncompressed bytes of the records
     */
    Claims claims(int records, int recordBytes) {
        if (records == 0 || records != begun || minTimestamp < 0
            || recordBytes > MAX_DECOMPRESSED_BYTES)
            return null;
        Claims claims = Claims.version2(minTimestamp, records,
            Claims.strongestNullKeys(nullKeys, records), BATCH_OVERHEAD + recordBytes,
            withoutLengthField(maxSize));
        SchemaIds ids = seenIds == null ? null : seenIds.ids();
        return ids == null ? claims : claims.withSchemaIds(ids);
    }

    /** Return the size of a record's body; the length field is a zigzag varint of that size. */
    static int withoutLengthField(int size) {
        for (int field = 1; ; field++) {
            int body = size - field;
            // a varint of n bytes holds 7 * n bits, one of them the sign
            if (field == 5 || body < 1 << (7 * field - 1))
                return body;
        }
    }
}
