package batchval.broker;

/** What JMX shows as {@code batchval:type=claims}; batches, unless another unit is named. */
public interface ClaimsMBean {
    /** Accepted on their claims; their records were not read. */
    long getTrusted();

    /** Had claims that were to be verified: by policy, of a sample, of a new or demoted sender. */
    long getVerified();

    /** Had claims that were true of their records. */
    long getHonest();

    /** Had claims that were not. */
    long getLying();

    /** Had claims, but were refused before their records were read to the end. */
    long getUnjudged();

    /** Had claims that cannot be read, are another batch's or differ from each other. */
    long getUnbound();

    /** Had no claims. */
    long getNoClaims();

    /** Had believed claims that do not settle the batch: Kafka has read the records. */
    long getNotSettled();

    /** How often a lie has demoted a sender. */
    long getDemotions();

    /** Came from ANONYMOUS on a listener that no rule of audit or trust names. */
    long getAnonymousIgnored();

    /** Failures of the agent's own code; Kafka has validated these batches. */
    long getErrors();

    /**
     * 1 where the agent patches nothing and the broker runs as without it, else 0. An upgrade to a
     * release that the agent does not know does this: alert on it.
     */
    long getInactive();

    /** "active: ..." or "inactive: CLASS and REASON". */
    String getStatus();
}
