package batchval.producer.agent;

import batchval.claims.Block;
import batchval.claims.Carriers;
import batchval.claims.Claims;
import batchval.claims.Tag;
import java.nio.ByteBuffer;

/**
 * What the patched classes of Kafka call, once or twice a batch. No method throws, and none keeps
 * anything: the state of a batch is a field of its builder and of its records.
 */
public final class Hooks {
    /** The first version of Produce with tagged fields (KIP-482). */
    private static final short TAGGED_FIELDS = 9;
    private static final int CRC = 17;
    private static final int GZIP_FLAGS = 3;
    private static final byte FLAG_EXTRA = 4;

    static final Options OFF = new Options(Carrier.NONE, false);
    static volatile Options options = OFF;

    // ---- ProducerBatch -------------------------------------------------------------------------

    /**
     * Start the claims of a batch that has no record yet. For claims in the payload, their place is
     * reserved in front of what the compressor will write, with room for the most schema ids where
     * they are stated.
     *
     * @param split whether the batch comes from one that was too large: it gets a tag, which does
     *     not make it larger
     */
    public static void start(Object builder, boolean split) {
        Options set = options;
        try {
            if (set.carrier() == Carrier.NONE || !(builder instanceof PatchedBuilder patched)
                || patched.magic() != 2 || patched.numRecords() != 0 || patched.isControlBatch()
                || patched.hasDeleteHorizonMs()
                || !name(patched.batchval$timestampType()).equals("CREATE_TIME"))
                return;
            String codec = name(patched.batchval$codec());
            if (codec.equals("NONE"))
                return;
            Building building = new Building(set.schemaIds());
            if (set.carrier() == Carrier.PAYLOAD && !split)
                reserve(patched, building, codec,
                    set.schemaIds() ? Block.LARGEST_WITH_SCHEMA_IDS : Block.SMALLEST);
            patched.batchval$building(building);
        } catch (Throwable failure) {
            Counters.failed(failure);
        }
    }

    private static void reserve(PatchedBuilder builder, Building building, String codec,
                                int blockSize) {
        boolean gzip = codec.equals("GZIP");
        if (!gzip && !codec.equals("ZSTD"))
            return;
        ByteBuffer buffer = builder.buffer();
        int payload = builder.batchval$initialPosition() + Building.BATCH_OVERHEAD;
        int at = payload + (gzip ? Carriers.GZIP_HEADER : 0);
        // the gzip stream has written its header, the zstd stream nothing
        if (buffer.position() != at || gzip && !isPlainGzip(buffer, payload))
            return;
        building.gzip = gzip;
        building.carrierAt = at - builder.batchval$initialPosition();
        building.carrierBytes = building.carrierSize(blockSize);
        builder.batchval$position(at + building.carrierBytes);
    }

    /** Return whether a gzip header without any optional part starts here. */
    private static boolean isPlainGzip(ByteBuffer buffer, int at) {
        return buffer.get(at) == 0x1F && buffer.get(at + 1) == (byte) 0x8B
            && buffer.get(at + 2) == 8 && buffer.get(at + GZIP_FLAGS) == 0;
    }

    // ---- MemoryRecordsBuilder ------------------------------------------------------------------

    /**
     * Complete the claims of a batch whose records are compressed and whose header is not written,
     * in its payload if they have a place there. A batch that was reopened comes here again.
     */
    public static void close(PatchedBuilder builder) {
        Building building = builder.batchval$building();
        if (building == null)
            return;
        try {
            building.block = block(builder, building);
            if (building.carrierBytes > 0)
                fill(builder, building);
        } catch (Throwable failure) {
            building.block = null;
            shrink(builder, building, 0);
            Counters.failed(failure);
        }
        if (!building.counted) {
            building.counted = true;
            Counters.batch(building);
        }
    }

    private static byte[] block(PatchedBuilder builder, Building building) {
        Long last = builder.batchval$lastOffset();
        int records = builder.numRecords();
        if (last == null || last - builder.batchval$baseOffset() != records - 1)
            return null;
        Claims claims = building.claims(records, builder.batchval$recordBytes());
        return claims == null ? null : Block.encode(claims);
    }

    /**
     * Write the carrier to its place, which gets the carrier's size, or remove the place where the
     * batch would be too large.
     */
    private static void fill(PatchedBuilder builder, Building building) {
        ByteBuffer buffer = builder.buffer();
        int start = builder.batchval$initialPosition();
        int size = building.block == null ? 0 : building.carrierSize(building.block.length);
        int batchSize = buffer.position() - start - building.carrierBytes + size;
        shrink(builder, building, batchSize > builder.batchval$writeLimit() ? 0 : size);
        if (building.carrierBytes == 0)
            return;
        int at = start + building.carrierAt;
        buffer.put(at, building.gzip ? Carriers.gzipExtra(building.block)
            : Carriers.zstdFrame(building.block));
        if (building.gzip)
            buffer.put(start + Building.BATCH_OVERHEAD + GZIP_FLAGS, FLAG_EXTRA);
    }

    /** Reduce the place of the carrier to as many bytes: what was compressed moves down. */
    private static void shrink(PatchedBuilder builder, Building building, int size) {
        int gone = building.carrierBytes - size;
        if (gone == 0)
            return;
        ByteBuffer buffer = builder.buffer();
        int at = builder.batchval$initialPosition() + building.carrierAt;
        if (building.gzip && size == 0)
            buffer.put(at - Carriers.GZIP_HEADER + GZIP_FLAGS, (byte) 0);
        int from = at + building.carrierBytes;
        buffer.put(at + size, buffer.duplicate(), from, buffer.position() - from);
        buffer.position(buffer.position() - gone);
        building.carrierBytes = size;
    }

    /** Give the records that were built what is known of them. */
    public static void built(PatchedBuilder builder, Object records) {
        if (records instanceof PatchedRecords patched)
            patched.batchval$building(builder.batchval$building());
    }

    // ---- PartitionProduceData, Sender ----------------------------------------------------------

    /**
     * Add the tag with the claims to a partition of a Produce request that is about to be written
     * at this version. Below version 9 tagged fields are an error, so that there must be none.
     */
    public static void tag(PatchedPartition partition, short version) {
        try {
            Object there = partition.batchval$tag();
            if (version < TAGGED_FIELDS) {
                if (there != null) {
                    partition.batchval$fields().remove(there);
                    partition.batchval$tag(null);
                }
                return;
            }
            if (there != null || !(partition.batchval$records() instanceof PatchedRecords records))
                return;
            Building building = records.batchval$building();
            if (building == null || building.block == null || building.isInPayload())
                return;
            ByteBuffer batch = records.buffer();
            byte[] tag = ByteBuffer.allocate(building.block.length + Tag.CRC_BYTES)
                .put(building.block).putInt(batch.getInt(batch.position() + CRC)).array();
            Object field = partition.batchval$newField(Tag.NUMBER, tag);
            partition.batchval$fields().add(field);
            partition.batchval$tag(field);
        } catch (Throwable failure) {
            Counters.failed(failure);
        }
    }

    /**
     * Return the number of records that decides whether a batch that the broker finds too large
     * (MESSAGE_TOO_LARGE) is split: more than one. A batch of one record with claims in its payload
     * is "split" too, into the same batch without them: the topic may allow that one.
     */
    public static int splittable(int records, Object batch) {
        return records == 1 && batch instanceof PatchedBatch patched
            && patched.batchval$builder() instanceof PatchedBuilder builder
            && builder.batchval$building() != null
            && builder.batchval$building().isInPayload() ? 2 : records;
    }

    private static String name(Object constant) {
        return ((Enum<?>) constant).name();
    }

    private Hooks() { }
}
