package batchval.claims;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * The block of claims, version 2, big-endian.
 * <pre>
 * version:1 = 2, batch_min_timestamp:8 records_number:4 null_keys:1 uncompressed_bytes:4
 * max_record_bytes:4 fields
 * fields   count, then (number, size, bytes) in rising order; all but bytes: unsigned varints
 * </pre>
 */
public final class Block {
    public static final int VERSION = 2;
    /** The bytes of a block without fields. */
    public static final int SMALLEST = 23;
    public static final int LARGEST = 256;
    /** The bytes of a block whose only field is a field 1 with the most ids. */
    public static final int LARGEST_WITH_SCHEMA_IDS = SMALLEST + 2 + SchemaIds.LARGEST;

    static final int FIELDS = 22;

    /**
     * Return the bytes of claims of version 2.
     *
     * @throws IllegalArgumentException the claims are of version 1, their fields do not rise, or
     *     the block would have more than 256 bytes
     */
    public static byte[] encode(Claims claims) {
        if (claims.version() != VERSION)
            throw new IllegalArgumentException("a block has claims of version 2, not of version "
                + claims.version());
        int size = SMALLEST - 1 + varintSize(claims.fields().size());
        long previous = -1;
        for (Claims.Field field : claims.fields()) {
            long number = Integer.toUnsignedLong(field.number());
            if (number <= previous)
                throw new IllegalArgumentException("field " + number + " does not follow field "
                    + previous + ": numbers must rise");
            previous = number;
            size += varintSize(field.number()) + varintSize(field.bytes().length)
                + field.bytes().length;
        }
        if (size > LARGEST)
            throw new IllegalArgumentException("a block has at most " + LARGEST + " bytes, not "
                + size);
        ByteBuffer to = ByteBuffer.allocate(size);
        write(claims, to);
        return to.array();
    }

    /** Write a block; {@code encode} describes what is checked, and nothing is checked here. */
    public static void write(Claims claims, ByteBuffer to) {
        to.put((byte) VERSION).putLong(claims.batchMinTimestamp()).putInt(claims.recordsNumber())
            .put(claims.nullKeys()).putInt(claims.uncompressedBytes())
            .putInt(claims.maxRecordBytes());
        putVarint(to, claims.fields().size());
        for (Claims.Field field : claims.fields()) {
            putVarint(to, field.number());
            putVarint(to, field.bytes().length);
            to.put(field.bytes());
        }
    }

    /** Return the claims of a block, or null: the bytes are not a block of version 2. */
    public static Claims decode(byte[] block) {
        return decode(ByteBuffer.wrap(block), 0, block.length);
    }

    /** Return the claims of the {@code size} bytes at {@code at} (absolute), or null. */
    public static Claims decode(ByteBuffer from, int at, int size) {
        if (size < SMALLEST || size > LARGEST || from.get(at) != VERSION)
            return null;
        List<Claims.Field> fields = fields(from, at + FIELDS, at + size);
        if (fields == null)
            return null;
        return new Claims(VERSION, from.getLong(at + 1), from.getInt(at + 9), from.get(at + 13),
            from.getInt(at + 14), from.getInt(at + 18), fields);
    }

    private static List<Claims.Field> fields(ByteBuffer from, int at, int end) {
        if (end == at + 1)
            return from.get(at) == 0 ? List.of() : null;
        Fields read = new Fields(from, at, end);
        return read.all();
    }

    /** Reads the fields of one block. */
    private static final class Fields {
        private final ByteBuffer from;
        private final int end;
        private int at;
        private boolean malformed = false;

        Fields(ByteBuffer from, int at, int end) {
            this.from = from;
            this.at = at;
            this.end = end;
        }

        /** Return all fields, or null where they are malformed. */
        List<Claims.Field> all() {
            List<Claims.Field> fields = new ArrayList<>();
            long previous = -1;
            for (long left = varint(); left > 0 && !malformed; left--) {
                long number = varint();
                long size = varint();
                if (malformed || number <= previous || size > end - at)
                    return null;
                byte[] bytes = new byte[(int) size];
                from.get(at, bytes);
                at += bytes.length;
                previous = number;
                fields.add(new Claims.Field((int) number, bytes));
            }
            return malformed || at != end ? null : List.copyOf(fields);
        }

        /** Read an unsigned varint of 32 bits; one that is cut off or padded is malformed. */
        private long varint() {
            long value = 0;
            for (int shift = 0; at < end && shift < 35; shift += 7) {
                int b = from.get(at++);
                value |= (long) (b & 0x7F) << shift;
                if (b >= 0) {
                    malformed |= value >> 32 != 0 || b == 0 && shift != 0;
                    return value;
                }
            }
            malformed = true;
            return 0;
        }
    }

    private static int varintSize(int value) {
        int size = 1;
        for (; (value & ~0x7F) != 0; value >>>= 7)
            size++;
        return size;
    }

    private static void putVarint(ByteBuffer to, int value) {
        for (; (value & ~0x7F) != 0; value >>>= 7)
            to.put((byte) (value | 0x80));
        to.put((byte) value);
    }

    private Block() { }
}
