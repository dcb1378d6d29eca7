package batchval.producer.agent;

import java.util.List;

/** What the patched PartitionProduceData of a Produce request implements. */
public interface PatchedPartition {
    Object batchval$records();

    /** The tagged fields that are written after the known ones; each is a RawTaggedField. */
    List<Object> batchval$fields();

    Object batchval$newField(int tag, byte[] data);

    /** The field with the claims, null before there is one. */
    Object batchval$tag();

    void batchval$tag(Object field);
}
