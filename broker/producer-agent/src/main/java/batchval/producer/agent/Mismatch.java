package batchval.producer.agent;

/** A class of Kafka is not shaped as the agent expects. */
final class Mismatch extends Exception {
    private static final long serialVersionUID = 1;

    Mismatch(String reason) {
        super(reason, null, false, false);
    }
}
