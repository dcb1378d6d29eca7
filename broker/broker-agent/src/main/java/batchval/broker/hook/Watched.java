package batchval.broker.hook;

/** What DefaultRecordBatch implements once patched: the stream of its records can be watched. */
public interface Watched {
    void batchval$watch(Object call);
}
