package batchval.producer.agent;

import java.nio.ByteBuffer;

/** What the patched MemoryRecords implements. */
public interface PatchedRecords {
    /** A duplicate of the buffer, at the beginning of the batch. */
    ByteBuffer buffer();

    Building batchval$building();

    void batchval$building(Building building);
}
