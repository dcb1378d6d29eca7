package batchval.claims;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;

class RecordWalkTest {
    // two records at 100 and 103 ms: a=one without headers; null=null with the header "é"=null
    private static final String FIRST = "14 00 00 00 02 61 06 6f6e65 00";
    private static final String SECOND = "14 00 06 02 01 01 02 04 c3a9 01";
    private static final Claims TRUE = Claims.version2(100, 2, Claims.SOME_KEYS_NULL, 61 + 22, 10);

    private static final String LIE = "schema ids are claimed that the values do not keep to";

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex.replace(" ", ""));
    }

    private static RecordWalk walk(byte[] records) {
        RecordWalk walk = new RecordWalk(100, null, 1000, true);
        walk.read(records, 0, records.length);
        walk.ended();
        return walk;
    }

    private static String lie(String records, Claims claims) {
        return walk(bytes(records)).lie(claims, 2, 103);
    }

    @Test
    void trueClaimsAreHonest() {
        assertNull(lie(FIRST + SECOND, TRUE));
        assertNull(lie(FIRST + SECOND, Claims.version1(100, 2, Claims.SOME_KEYS_NULL)));
        assertTrue(walk(bytes(FIRST + SECOND)).isWhole());
    }

    @Test
    void aLogAppendTimeIsTheTimestampOfAllRecords() {
        byte[] records = bytes(FIRST + SECOND);
        RecordWalk walk = new RecordWalk(100, 103L, 1000, false);
        walk.read(records, 0, records.length);
        walk.ended();
        assertNotNull(walk.lie(TRUE, 2, 103));
        assertNull(walk.lie(Claims.version2(103, 2, Claims.SOME_KEYS_NULL, 83, 10), 2, 103));
    }

    @ParameterizedTest
    @CsvSource({"101,2,0,83,10", "99,2,0,83,10", "100,1,0,83,10", "100,3,0,83,10", "100,2,1,83,10",
        "100,2,2,83,10", "100,2,3,83,10", "100,2,0,82,10", "100,2,0,84,10", "100,2,0,83,9",
        "100,2,0,83,11"})
    void aFalseClaimIsALie(long min, int count, byte nulls, int size, int longest) {
        assertNotNull(lie(FIRST + SECOND, Claims.version2(min, count, nulls, size, longest)));
    }

    @Test
    void theHeaderIsHeldToTheRecords() {
        RecordWalk walk = walk(bytes(FIRST + SECOND));
        assertEquals("the header's max timestamp is 104, but the records give 103",
            walk.lie(TRUE, 2, 104));
        assertEquals("records_number is 3, but the records give 2", walk.lie(TRUE, 3, 103));
    }

    @ParameterizedTest
    @CsvSource({
        "14 01 06 02 01 01 02 04 c3a9 01, an attribute",
        "14 00 06 04 01 01 02 04 c3a9 01, an offset delta",
        "14 00 06 02 03 01 02 04 c3a9 01, a key length of -2",
        "14 00 06 02 01 03 02 04 c3a9 01, a value length of -2",
        "14 00 06 02 01 01 02 04 c328 01, a header key that is not UTF-8",
        "12 00 06 02 01 01 02 04 c3a9 01, a length of one less",
        "16 00 06 02 01 01 02 04 c3a9 01, a length of one more",
        "9400 00 06 02 01 01 02 04 c3a9 01, a padded length",
        "14 00 06 02 01 01 02 04 c3a9, no end",
        "14 00 06 02 01 01 02 04 c3a9 01 80, the beginning of a length",
        "14 00 06 02 01 01 02 04 c3a9 01 00, one more byte",
        "14 00 ffffffffffffffffffff 02 01 01 02 04 c3a9 01, a timestamp of more than ten bytes",
        "14 00 d101 02 01 01 00, a timestamp below -1",
    })
    void recordsOutsideTheFormatAreALie(String second, String name) {
        assertNotNull(lie(FIRST + second, TRUE), name);
    }

    /** Return records with these values, without keys and headers; "null" is a null value. */
    private static byte[] ofValues(String... values) {
        ByteBuffer records = ByteBuffer.allocate(1000);
        for (int i = 0; i < values.length; i++) {
            byte[] value = values[i].equals("null") ? null : bytes(values[i]);
            int size = value == null ? 0 : value.length;
            records.put((byte) (2 * (6 + size))).put((byte) 0).put((byte) 0).put((byte) (2 * i))
                .put((byte) 1).put((byte) (value == null ? 1 : 2 * size))
                .put(value == null ? new byte[0] : value).put((byte) 0);
        }
        return Arrays.copyOf(records.array(), records.position());
    }

    private static SchemaIds idsOf(String... values) {
        return walk(ofValues(values)).schemaIds();
    }

    @Test
    void schemaIdsAreThoseOfTheValues() {
        assertEquals(new SchemaIds(true, 7, 9), idsOf("0000000009", "000000000776", "0000000009"));
        assertEquals(new SchemaIds(false, -1), idsOf("00ffffffff", "null", "00ffffffff00"));
        assertEquals(new SchemaIds(false), idsOf("null"));
        assertEquals(new SchemaIds(true, 0), idsOf("0000000000"));
        assertNull(idsOf("0000000009", ""));
        assertNull(idsOf("0000000009", "00000009"));
        assertNull(idsOf("0100000009", "0000000009"));
    }

    @Test
    void sixteenSchemaIdsAreTheMost() {
        String[] values = new String[17];
        for (int i = 0; i < 17; i++)
            values[i] = "000000%04x".formatted(97 * (i * 7 % 17));
        assertNull(idsOf(values));
        SchemaIds found = idsOf(Arrays.copyOf(values, 16));
        assertEquals(16, found.ids().length);
    }

    @ParameterizedTest
    @CsvSource({
        "010000000700000009, true", "000000000700000009, true", "01000000070000000800000009, true",
        "0100000007, false", "010000000700000008, false", "01, false",
        // other forms say nothing
        "0200000007, true", "01000000, true", "010000000900000007, true",
    })
    void aListThatLacksAnIdIsALie(String content, boolean honest) {
        byte[] records = ofValues("0000000009", "0000000007");
        assertEquals(honest ? null : LIE, walk(records).lie(claims(records, content), 2, 100));
    }

    @Test
    void noValueIsNullIsALieWhereOneIs() {
        byte[] records = ofValues("0000000009", "null");
        assertNull(walk(records).lie(claims(records, "0000000009"), 2, 100));
        assertEquals(LIE, walk(records).lie(claims(records, "0100000009"), 2, 100));
        byte[] without = ofValues("0000000009", "76");
        assertEquals(LIE, walk(without).lie(claims(without, "0000000009"), 2, 100));
    }

    @Test
    void schemaIdsThatWereNotCollectedAreNotALie() {
        byte[] records = ofValues("0000000009", "0000000009");
        RecordWalk walk = new RecordWalk(100, null, 1000, false);
        walk.read(records, 0, records.length);
        walk.ended();
        assertNull(walk.schemaIds());
        assertThrows(IllegalStateException.class,
            () -> walk.lie(claims(records, "0100000009"), 2, 100));
    }

    /** Return the claims of two records without keys at 100 ms, with this field 1. */
    private static Claims claims(byte[] records, String content) {
        int longest = Math.max(records[0], records[records[0] / 2 + 1]) / 2;
        return new Claims(2, 100, 2, Claims.ALL_KEYS_NULL, 61 + records.length, longest,
            List.of(new Claims.Field(SchemaIds.FIELD, bytes(content))));
    }

    /** In pieces of any size, read or passed over, the walk finds the same. */
    @Test
    void piecesDoNotMatter() {
        byte[] records = bytes(FIRST + SECOND);
        byte[] values = ofValues("000000000776", "null", "0000000008", "000000000776767676");
        Claims ofValues = Claims.version2(100, 4, Claims.ALL_KEYS_NULL, 61 + values.length, 15)
            .withSchemaIds(new SchemaIds(false, 7, 8));
        Random random = new Random(5);
        for (int round = 0; round < 500; round++) {
            RecordWalk walk = inPieces(records, random);
            assertNull(walk.lie(TRUE, 2, 103));
            assertTrue(walk.hasOneAboveLargest());
            walk = inPieces(values, random);
            assertNull(walk.lie(ofValues, 4, 100));
            assertEquals(ofValues.schemaIds(), walk.schemaIds());
        }
    }

    private static RecordWalk inPieces(byte[] records, Random random) {
        RecordWalk walk = new RecordWalk(100, null, 9, true);
        for (int at = 0; at < records.length; ) {
            int skip = Math.min(walk.skippable(), random.nextInt(3));
            if (skip > 0) {
                walk.skipped(skip);
                at += skip;
            } else {
                int size = Math.min(records.length - at, random.nextInt(5));
                walk.read(records, at, size);
                at += size;
            }
        }
        assertFalse(walk.isWhole());
        walk.ended();
        return walk;
    }
}
