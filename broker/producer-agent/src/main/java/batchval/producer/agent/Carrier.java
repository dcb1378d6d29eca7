package batchval.producer.agent;

/** Where the producer puts claims. */
public enum Carrier {
    /** In a tagged field of the Produce request. */
    TAG,
    /** In the payload of zstd and gzip batches, else in a tag. */
    PAYLOAD,
    /** Nowhere: nothing is patched. */
    NONE
}
