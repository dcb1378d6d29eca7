package batchval.producer.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import batchval.claims.Claims;
import batchval.claims.SchemaIds;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;

class BuildingTest {
    private static final ByteBuffer KEY = ByteBuffer.allocate(0);

    private static Building of(ByteBuffer... keys) {
        Building building = new Building(false);
        long timestamp = 100;
        for (ByteBuffer key : keys) {
            Building.begin(building, key, null);
            Building.written(building, timestamp--, 8);
        }
        return building;
    }

    @Test
    void lengthFieldsAreTakenOff() {
        for (int body = 0; body < 1 << 21; body += body < 20_000 ? 1 : 997)
            assertEquals(body, Building.withoutLengthField(body + sizeOfVarint(body)));
        for (int body : new int[] {(1 << 27) - 1, 1 << 27, Integer.MAX_VALUE - 5})
            assertEquals(body, Building.withoutLengthField(body + sizeOfVarint(body)));
    }

    private static int sizeOfVarint(int value) {
        int size = 1;
        for (int zigzag = value << 1 ^ value >> 31; (zigzag & ~0x7F) != 0; zigzag >>>= 7)
            size++;
        return size;
    }

    @Test
    void claimsAreThoseOfTheRecords() {
        assertEquals(Claims.version2(98, 3, Claims.NO_KEY_NULL, 85, 7),
            of(KEY, KEY, KEY).claims(3, 24));
        assertEquals(Claims.version2(99, 2, Claims.ALL_KEYS_NULL, 77, 7),
            of(null, null).claims(2, 16));
        assertEquals(Claims.version2(99, 2, Claims.SOME_KEYS_NULL, 77, 7),
            of(KEY, null).claims(2, 16));
    }

    @Test
    void schemaIdsAreThoseOfTheValues() {
        ByteBuffer value = ByteBuffer.allocate(9).putInt(1, 300);
        for (ByteBuffer second : new ByteBuffer[] {value, null, KEY}) {
            Building building = new Building(true);
            Building.begin(building, KEY, value);
            Building.written(building, 99, 20);
            Building.begin(building, KEY, second);
            Building.written(building, 98, 20);
            Claims expected = Claims.version2(98, 2, Claims.NO_KEY_NULL, 101, 19);
            if (second != KEY)
                expected = expected.withSchemaIds(new SchemaIds(second != null, 300));
            assertEquals(expected, building.claims(2, 40));
        }
    }

    @Test
    void aRecordThatWasNotWrittenWhollyLeavesNoClaims() {
        Building building = of(KEY, KEY);
        Building.begin(building, KEY, null);
        assertNull(building.claims(2, 16));
    }

    @Test
    void aRecordThatIsAppendedInAnotherWayLeavesNoClaims() {
        Building building = of(KEY, KEY);
        Building.written(building, 5, 8);
        assertNull(building.claims(3, 24));
    }

    @Test
    void noRecordsAndNegativeTimestampsHaveNoClaims() {
        assertNull(new Building(true).claims(0, 0));
        Building building = of(KEY);
        Building.begin(building, KEY, null);
        Building.written(building, -1, 8);
        assertNull(building.claims(2, 16));
    }

    @Test
    void batchesThatBrokersDoNotDecompressHaveNoClaims() {
        assertNotNull(of(KEY).claims(1, Building.MAX_DECOMPRESSED_BYTES));
        assertNull(of(KEY).claims(1, Building.MAX_DECOMPRESSED_BYTES + 1));
    }

    @Test
    void nullIsABatchWithoutClaims() {
        Building.begin(null, KEY, KEY);
        Building.written(null, 1, 8);
        assertEquals(70, Building.withCarrier(70, null));
        assertEquals(70, Building.withoutCarrier(70, null));
    }
}
