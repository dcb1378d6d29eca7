package batchval.producer.agent;

/** What the patched ProducerBatch implements. */
public interface PatchedBatch {
    /** The batch's MemoryRecordsBuilder. */
    Object batchval$builder();
}
