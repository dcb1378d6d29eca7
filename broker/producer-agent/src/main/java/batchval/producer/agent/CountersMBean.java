package batchval.producer.agent;

/** What JMX shows of the agent. */
public interface CountersMBean {
    /** Compressed batches with claims in a tag; a Produce request before version 9 drops it. */
    long getTag();

    /** Compressed batches with claims in their payload. */
    long getPayload();

    /** Batches of these two whose claims state schema ids. */
    long getSchemaIds();

    /** Compressed batches about which no claims would be honest or of use. */
    long getNone();

    /** Failures of the agent's own code. */
    long getErrors();

    /** {@code active: ...} or {@code inactive: ...} with the class and the reason. */
    String getStatus();
}
