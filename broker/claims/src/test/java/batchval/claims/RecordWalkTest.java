package batchval.claims;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.HexFormat;
import java.util.Random;

class RecordWalkTest {
    // two records at 100 and 103 ms: a=one without headers; null=null with the header "é"=null
    private static final String FIRST = "14 00 00 00 02 61 06 6f6e65 00";
    private static final String SECOND = "14 00 06 02 01 01 02 04 c3a9 01";
    private static final Claims TRUE = Claims.version2(100, 2, Claims.SOME_KEYS_NULL, 61 + 22, 10);

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex.replace(" ", ""));
    }

    private static RecordWalk walk(byte[] records) {
        RecordWalk walk = new RecordWalk(100, null, 1000);
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
        RecordWalk walk = new RecordWalk(100, 103L, 1000);
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

    /** In pieces of any size, read or passed over, the walk finds the same. */
    @Test
    void piecesDoNotMatter() {
        byte[] records = bytes(FIRST + SECOND);
        Random random = new Random(5);
        for (int round = 0; round < 500; round++) {
            RecordWalk walk = new RecordWalk(100, null, 9);
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
            assertNull(walk.lie(TRUE, 2, 103));
            assertTrue(walk.hasOneAboveLargest());
        }
    }
}
