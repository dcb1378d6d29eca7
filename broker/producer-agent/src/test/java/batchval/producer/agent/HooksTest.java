package batchval.producer.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import batchval.claims.Block;
import batchval.claims.SchemaIds;
import batchval.claims.Tag;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class HooksTest {
    private static final byte[] GZIP = {0x1F, (byte) 0x8B, 8, 0, 0, 0, 0, 0, 0, 0};
    private static final byte[] PAYLOAD = "compressed".getBytes();

    private enum Codec { NONE, GZIP, SNAPPY, ZSTD }

    private enum TimestampType { CREATE_TIME, LOG_APPEND_TIME }

    /** A builder, with a batch that starts at position 5 of its buffer. */
    private static final class Builder implements PatchedBuilder {
        final ByteBuffer buffer;
        final Codec codec;
        byte magic = 2;
        int records;
        boolean control;
        TimestampType timestampType = TimestampType.CREATE_TIME;
        int limit = 4096;
        Building building;

        Builder(Codec codec, boolean direct) {
            this.codec = codec;
            buffer = direct ? ByteBuffer.allocateDirect(500) : ByteBuffer.allocate(500);
            buffer.position(5 + 61);
            if (codec == Codec.GZIP)
                buffer.put(GZIP);
        }

        void append(ByteBuffer key) {
            append(key, null);
        }

        void append(ByteBuffer key, ByteBuffer value) {
            Building.begin(building, key, value);
            Building.written(building, 1000 - records++, 8);
            buffer.put(PAYLOAD);
        }

        byte[] payload() {
            return Arrays.copyOfRange(bytes(), 5 + 61, buffer.position());
        }

        private byte[] bytes() {
            byte[] all = new byte[500];
            buffer.get(0, all);
            return all;
        }

        @Override public byte magic() { return magic; }
        @Override public int numRecords() { return records; }
        @Override public boolean isControlBatch() { return control; }
        @Override public boolean hasDeleteHorizonMs() { return false; }
        @Override public ByteBuffer buffer() { return buffer; }
        @Override public Building batchval$building() { return building; }
        @Override public void batchval$building(Building set) { building = set; }
        @Override public Object batchval$codec() { return codec; }
        @Override public Object batchval$timestampType() { return timestampType; }
        @Override public int batchval$initialPosition() { return 5; }
        @Override public int batchval$recordBytes() { return 8 * records; }
        @Override public Long batchval$lastOffset() { return records == 0 ? null : records - 1L; }
        @Override public long batchval$baseOffset() { return 0; }
        @Override public int batchval$writeLimit() { return limit; }
        @Override public void batchval$position(int position) { buffer.position(position); }
    }

    private static final class Partition implements PatchedPartition {
        final Object records;
        final List<Object> fields = new ArrayList<>();
        Object tag;

        Partition(Object records) {
            this.records = records;
        }

        @Override public Object batchval$records() { return records; }
        @Override public List<Object> batchval$fields() { return fields; }
        @Override public Object batchval$newField(int tag, byte[] data) {
            return List.of(tag, data);
        }
        @Override public Object batchval$tag() { return tag; }
        @Override public void batchval$tag(Object field) { tag = field; }
    }

    private record Records(ByteBuffer buffer, Building batchval$building)
        implements PatchedRecords {
        @Override public void batchval$building(Building building) { }
    }

    private record Batch(Object batchval$builder) implements PatchedBatch { }

    @AfterEach
    void off() {
        Hooks.options = Hooks.OFF;
    }

    private static void carrier(Carrier carrier) {
        Hooks.options = new Options(carrier, false);
    }

    private static Builder started(Carrier carrier, Codec codec, boolean direct) {
        carrier(carrier);
        return started(codec, direct);
    }

    private static Builder started(Codec codec, boolean direct) {
        Builder builder = new Builder(codec, direct);
        Hooks.start(builder, false);
        return builder;
    }

    @Test
    void aBatchWithoutCompressionOrOfAnotherKindHasNoClaims() {
        assertNull(started(Carrier.TAG, Codec.NONE, false).building);
        assertNull(started(Carrier.NONE, Codec.ZSTD, false).building);
        for (int i = 0; i < 4; i++) {
            Builder builder = new Builder(Codec.ZSTD, false);
            builder.magic = (byte) (i == 0 ? 1 : 2);
            builder.control = i == 1;
            builder.records = i == 2 ? 1 : 0;
            if (i == 3)
                builder.timestampType = TimestampType.LOG_APPEND_TIME;
            carrier(Carrier.PAYLOAD);
            Hooks.start(builder, false);
            assertNull(builder.building);
            assertEquals(66, builder.buffer.position());
        }
        Hooks.start("not a builder", false);
    }

    @Test
    void theCarrierIsInFrontOfWhatIsCompressed() {
        for (Codec codec : List.of(Codec.ZSTD, Codec.GZIP)) {
            for (boolean direct : new boolean[] {false, true}) {
                Builder builder = started(Carrier.PAYLOAD, codec, direct);
                builder.append(null);
                for (int again = 0; again < 2; again++)
                    Hooks.close(builder);
                assertTrue(builder.building.isInPayload());
                byte[] payload = builder.payload();
                int size = codec == Codec.ZSTD ? 33 : 39;
                assertEquals(size + PAYLOAD.length, payload.length);
                assertArrayEquals(builder.building.block,
                    Arrays.copyOfRange(payload, size - Block.SMALLEST, size));
                assertEquals(codec == Codec.ZSTD ? 0x5B : 0x1F, payload[0]);
                assertEquals(codec == Codec.ZSTD ? 0x18 : 4, payload[3]);
                assertEquals(2, Hooks.splittable(1, new Batch(builder)));
            }
        }
    }

    @Test
    void thePlaceIsRemovedWhereTheBatchWouldBeTooLargeOrTheClaimsFalse() {
        for (Codec codec : List.of(Codec.ZSTD, Codec.GZIP)) {
            for (int i = 0; i < 4; i++) {
                Builder builder = started(Carrier.PAYLOAD, codec, i % 2 == 0);
                builder.append(null);
                if (i < 2)
                    builder.limit = builder.buffer.position() - 5 - 1;
                else
                    Building.begin(builder.building, null, null);
                Hooks.close(builder);
                assertEquals(i < 2, builder.building.block != null);
                assertFalse(builder.building.isInPayload());
                byte[] expected = codec == Codec.ZSTD ? PAYLOAD
                    : ByteBuffer.allocate(20).put(GZIP).put(PAYLOAD).array();
                assertArrayEquals(expected, builder.payload());
                assertEquals(1, Hooks.splittable(1, new Batch(builder)));
            }
        }
    }

    private static ByteBuffer value(int id) {
        return ByteBuffer.allocate(7).putInt(1, id);
    }

    /** The place is for 16 ids; what was compressed moves down to the claims that there are. */
    @Test
    void schemaIdsHaveAPlaceInFrontOfWhatIsCompressed() {
        Hooks.options = new Options(Carrier.PAYLOAD, true);
        for (Codec codec : List.of(Codec.ZSTD, Codec.GZIP)) {
            for (int ids : new int[] {0, 1, 3, 16, 17}) {
                Builder builder = started(codec, ids % 2 == 0);
                int place = builder.building.carrierBytes;
                builder.append(null, ids == 0 ? ByteBuffer.allocate(4) : value(1000));
                for (int id = ids - 1; id > 0; id--)
                    builder.append(null, value(id));
                int end = builder.buffer.position();
                for (int again = 0; again < 2; again++)
                    Hooks.close(builder);
                boolean stated = ids > 0 && ids <= 16;
                int blockSize = stated ? 23 + 2 + 1 + 4 * ids : 23;
                assertEquals(blockSize, builder.building.block.length);
                assertEquals(stated, builder.building.hasSchemaIds());
                SchemaIds found = Block.decode(builder.building.block).schemaIds();
                assertEquals(stated, found != null);
                if (stated)
                    assertEquals(ids, found.ids().length);
                int size = builder.building.carrierBytes;
                assertEquals(blockSize + (codec == Codec.ZSTD ? 10 : 6), size);
                assertEquals(end - place + size, builder.buffer.position());
                byte[] payload = builder.payload();
                int at = size + (codec == Codec.ZSTD ? 0 : GZIP.length);
                assertArrayEquals(builder.building.block,
                    Arrays.copyOfRange(payload, at - blockSize, at));
                byte[] compressed = new byte[builder.records * PAYLOAD.length];
                for (int i = 0; i < compressed.length; i++)
                    compressed[i] = PAYLOAD[i % PAYLOAD.length];
                assertArrayEquals(compressed,
                    Arrays.copyOfRange(payload, at, payload.length));
            }
        }
    }

    /** The limit is asked of the claims that there are, not of the place that they had. */
    @Test
    void aBatchWithSchemaIdsStaysWithinItsLimit() {
        Hooks.options = new Options(Carrier.PAYLOAD, true);
        for (int over = 0; over < 2; over++) {
            Builder builder = started(Codec.ZSTD, true);
            builder.append(null, value(7));
            builder.limit = 61 + 10 + 30 + PAYLOAD.length - over;
            Hooks.close(builder);
            assertTrue(builder.building.hasSchemaIds());
            assertEquals(over == 0, builder.building.isInPayload());
            assertEquals(builder.limit - (over == 0 ? 0 : 10 + 30 - over),
                builder.buffer.position() - 5);
        }
    }

    @Test
    void aTagStatesSchemaIds() {
        Hooks.options = new Options(Carrier.TAG, true);
        Builder builder = started(Codec.SNAPPY, false);
        builder.append(null, value(9));
        builder.append(null, null);
        Hooks.close(builder);
        Partition partition = new Partition(
            new Records(ByteBuffer.allocate(100), builder.building));
        Hooks.tag(partition, (short) 9);
        byte[] tag = (byte[]) ((List<?>) partition.fields.get(0)).get(1);
        assertEquals(new SchemaIds(false, 9), Tag.decode(tag).claims().schemaIds());
    }

    @Test
    void aSplitBatchAndAnotherCodecGetATag() {
        Builder builder = new Builder(Codec.ZSTD, false);
        carrier(Carrier.PAYLOAD);
        Hooks.start(builder, true);
        assertEquals(66, builder.buffer.position());
        assertEquals(66, started(Carrier.PAYLOAD, Codec.SNAPPY, false).buffer.position());
        assertEquals(66, started(Carrier.TAG, Codec.ZSTD, false).buffer.position());
    }

    @Test
    void aGzipHeaderWithOptionalPartsIsLeftAlone() {
        carrier(Carrier.PAYLOAD);
        Builder builder = new Builder(Codec.GZIP, false);
        builder.buffer.put(66 + 3, (byte) 8);
        Hooks.start(builder, false);
        assertEquals(0, builder.building.carrierBytes);
    }

    @Test
    void theTagIsBoundToTheHeadersCrc() {
        Builder builder = started(Carrier.TAG, Codec.SNAPPY, false);
        builder.append(null);
        Hooks.close(builder);
        ByteBuffer batch = ByteBuffer.allocate(100).putInt(17, 0xCAFEBABE);
        Partition partition = new Partition(new Records(batch, builder.building));
        Hooks.tag(partition, (short) 8);
        assertEquals(List.of(), partition.fields);
        for (int again = 0; again < 2; again++)
            Hooks.tag(partition, (short) 9);
        assertEquals(1, partition.fields.size());
        List<?> field = (List<?>) partition.fields.get(0);
        assertEquals(25206, field.get(0));
        byte[] expected = ByteBuffer.allocate(27).put(builder.building.block).putInt(0xCAFEBABE)
            .array();
        assertArrayEquals(expected, (byte[]) field.get(1));
        Hooks.tag(partition, (short) 8);
        assertEquals(List.of(), partition.fields);
        Hooks.tag(new Partition("records of another class"), (short) 9);
    }
}
