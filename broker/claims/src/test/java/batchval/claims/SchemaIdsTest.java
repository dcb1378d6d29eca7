package batchval.claims;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;

class SchemaIdsTest {
    private static ByteBuffer value(int id) {
        return ByteBuffer.allocate(9).put((byte) 0).putInt(id).rewind();
    }

    private static SchemaIds seen(ByteBuffer... values) {
        SeenIds seen = new SeenIds();
        for (ByteBuffer value : values)
            seen.note(value);
        return seen.ids();
    }

    @Test
    void moreIdsThanThereAreAreTrue() {
        SchemaIds found = new SchemaIds(true, -3, 7, 300);
        for (SchemaIds claimed : List.of(found, new SchemaIds(false, -3, 7, 300),
            new SchemaIds(true, -9, -3, 0, 7, 300, 301)))
            assertTrue(claimed.covers(found), claimed.toString());
        for (SchemaIds claimed : List.of(new SchemaIds(true), new SchemaIds(true, 7, 300),
            new SchemaIds(true, -3, 7), new SchemaIds(true, -3, 8, 300)))
            assertFalse(claimed.covers(found), claimed.toString());
        assertFalse(found.covers(null));
        assertFalse(found.covers(new SchemaIds(false, -3, 7, 300)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"7 7", "8 7", "7 -7", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"})
    void idsThatDoNotRiseOrAreTooManyAreRefused(String text) {
        int[] ids = List.of(text.split(" ")).stream().mapToInt(Integer::parseInt).toArray();
        assertThrows(IllegalArgumentException.class, () -> new SchemaIds(true, ids));
    }

    @Test
    void aBlockWithTheMostIdsHasTheLargestSize() {
        int[] ids = new int[SchemaIds.MOST_IDS];
        for (int i = 0; i < ids.length; i++)
            ids[i] = i;
        Claims claims = Claims.version2(0, 20, Claims.NO_KEY_NULL, 900, 40);
        assertNull(claims.schemaIds());
        Claims with = claims.withSchemaIds(new SchemaIds(true, ids));
        assertEquals(new SchemaIds(true, ids), with.schemaIds());
        byte[] block = Block.encode(with);
        assertEquals(Block.LARGEST_WITH_SCHEMA_IDS, block.length);
        assertEquals(with, Block.decode(block));
        assertNotEquals(claims, with);
    }

    @Test
    void valuesWithoutAnIdLeaveNone() {
        assertEquals(new SchemaIds(true, 7, 9), seen(value(9), value(7), value(9)));
        assertEquals(new SchemaIds(false, 9), seen(value(9), null));
        assertEquals(new SchemaIds(false), seen((ByteBuffer) null));
        assertNull(seen(value(9), value(9).limit(0)));
        assertNull(seen(value(9), value(9).limit(4)));
        assertEquals(new SchemaIds(true, 9), seen(value(9).limit(5)));
        assertNull(seen(value(9).put(0, (byte) 1), value(9)));
    }

    /** A value is what is between position and limit; ids are big-endian in any buffer. */
    @Test
    void theValueOfABufferIsReadAndNothingElse() {
        ByteBuffer inside = ByteBuffer.allocateDirect(12).put(3, (byte) 0).putInt(4, 300)
            .position(3).limit(8).order(ByteOrder.LITTLE_ENDIAN);
        assertEquals(new SchemaIds(true, 300), seen(inside));
        assertEquals(3, inside.position());
        assertEquals(8, inside.limit());
    }

    @Test
    void idsInAnyOrder() {
        Random random = new Random(3);
        for (int round = 0; round < 300; round++) {
            TreeSet<Integer> expected = new TreeSet<>();
            SeenIds seen = new SeenIds();
            for (int i = random.nextInt(40); i > 0; i--) {
                int id = random.nextBoolean() ? random.nextInt(30) - 15 : random.nextInt();
                expected.add(id);
                seen.note(value(id));
            }
            if (expected.size() > SchemaIds.MOST_IDS)
                assertNull(seen.ids());
            else
                assertArrayEquals(expected.stream().mapToInt(i -> i).toArray(), seen.ids().ids());
        }
    }
}
