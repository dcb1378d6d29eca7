package batchval.broker.hook;

/** What MemoryRecords implements once patched: the claims travel with the request's records. */
public interface CarriesClaims {
    Object batchval$carried();

    void batchval$carry(Object carried);
}
