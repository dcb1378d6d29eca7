package batchval.claims;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Field 1 of claims: the schema ids at the start of a batch's values, big-endian.
 * <pre>
 * flags:1 (id:4)*    flags, bit 0: no value is null; ids: int32, rising, at most 16
 * </pre>
 * Each value that is not null begins with a byte 0 and one of the ids (Confluent's wire format).
 */
public final class SchemaIds {
    /** The number of the field. */
    public static final int FIELD = 1;
    public static final int MOST_IDS = 16;
    /** The bytes of a content with 16 ids. */
    public static final int LARGEST = 1 + Integer.BYTES * MOST_IDS;
    /** The bytes at the start of a value: a byte 0 and the id. */
    static final int PREFIX = 1 + Integer.BYTES;

    private static final int NO_VALUE_NULL = 1;

    private final boolean noValueNull;
    private final int[] ids;

    /**
     * @param noValueNull whether no value is null
     * @param ids         the ids, each greater than the one before
     * @throws IllegalArgumentException there are more than 16 ids, or they do not rise
     */
    public SchemaIds(boolean noValueNull, int... ids) {
        if (ids.length > MOST_IDS || !rise(ids))
            throw new IllegalArgumentException("invalid schema ids " + Arrays.toString(ids)
                + ": expected at most " + MOST_IDS + ", each greater than the one before");
        this.noValueNull = noValueNull;
        this.ids = ids.clone();
    }

    private static boolean rise(int[] ids) {
        for (int i = 1; i < ids.length; i++)
            if (ids[i] <= ids[i - 1])
                return false;
        return true;
    }

    /**
     * Return what the content of a field 1 states, or null: it has another form, and is passed over
     * as a field with an unknown number is.
     */
    public static SchemaIds decode(byte[] content) {
        if (content.length < 1 || content.length > LARGEST
            || (content.length - 1) % Integer.BYTES != 0 || (content[0] & ~NO_VALUE_NULL) != 0)
            return null;
        int[] ids = new int[(content.length - 1) / Integer.BYTES];
        ByteBuffer.wrap(content, 1, content.length - 1).asIntBuffer().get(ids);
        return rise(ids) ? new SchemaIds(content[0] == NO_VALUE_NULL, ids) : null;
    }

    /** Return the content of field 1. */
    public byte[] encode() {
        ByteBuffer content = ByteBuffer.allocate(1 + Integer.BYTES * ids.length)
            .put((byte) (noValueNull ? NO_VALUE_NULL : 0));
        for (int id : ids)
            content.putInt(id);
        return content.array();
    }

    /** Return whether no value is null. */
    public boolean noValueNull() {
        return noValueNull;
    }

    /** Return the ids, rising; the list may have ids that no value has. */
    public int[] ids() {
        return ids.clone();
    }

    /**
     * Return whether these ids are true of values with the found ones, which may be fewer.
     *
     * @param found what the values have; null: not each of them has an id, or there are too many
     */
    public boolean covers(SchemaIds found) {
        if (found == null || noValueNull && !found.noValueNull)
            return false;
        for (int id : found.ids)
            if (Arrays.binarySearch(ids, id) < 0)
                return false;
        return true;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof SchemaIds those && noValueNull == those.noValueNull
            && Arrays.equals(ids, those.ids);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(ids) + Boolean.hashCode(noValueNull);
    }

    @Override
    public String toString() {
        return "schema ids " + Arrays.toString(ids) + (noValueNull ? ", no value is null" : "");
    }
}
