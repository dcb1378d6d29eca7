package batchval.claims;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Collects the schema ids of a batch's values, one value after the other. */
public final class SeenIds {
    private final int[] ids = new int[SchemaIds.MOST_IDS];
    private int count = 0;
    private boolean noValueNull = true;
    private boolean stated = true;
    /** The id that was noted last, once there is one: values with one schema follow each other. */
    private int last = 0;

    /** Note a value, from its position to its limit; null is a null value. */
    public void note(ByteBuffer value) {
        if (!stated)
            return;
        if (value == null) {
            noteNull();
            return;
        }
        int at = value.position();
        if (value.limit() - at < SchemaIds.PREFIX || value.get(at) != 0) {
            noteOther();
            return;
        }
        int id = value.getInt(at + 1);
        noteId(value.order() == ByteOrder.BIG_ENDIAN ? id : Integer.reverseBytes(id));
    }

    /** Note a value that is null. */
    void noteNull() {
        noValueNull = false;
    }

    /** Note a value that does not begin with a byte 0 and an id: no ids can be stated. */
    void noteOther() {
        stated = false;
    }

    /** Note a value that begins with a byte 0 and this id. */
    void noteId(int id) {
        if (id == last && count > 0)
            return;
        last = id;
        int at = Arrays.binarySearch(ids, 0, count, id);
        if (at >= 0)
            return;
        if (count == ids.length) {
            stated = false;
            return;
        }
        at = -at - 1;
        System.arraycopy(ids, at, ids, at + 1, count - at);
        ids[at] = id;
        count++;
    }

    /** Return whether the values so far have ids that field 1 can state. */
    boolean isStated() {
        return stated;
    }

    /** Return the ids of the values so far, or null: a value has none, or there are too many. */
    public SchemaIds ids() {
        return stated ? new SchemaIds(noValueNull, Arrays.copyOf(ids, count)) : null;
    }
}
