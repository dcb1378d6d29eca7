package batchval.broker;

/** A class of Kafka is not as the agent knows it; the message names the class and what differs. */
final class ShapeMismatch extends Exception {
    private static final long serialVersionUID = 1;

    ShapeMismatch(String type, String reason) {
        super(type.replace('/', '.') + ": " + reason);
    }
}
