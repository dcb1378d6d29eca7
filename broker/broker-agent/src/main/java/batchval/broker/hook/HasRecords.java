package batchval.broker.hook;

/** What PartitionProduceData implements once patched: its records have another type in 4.4. */
public interface HasRecords {
    Object batchval$records();
}
