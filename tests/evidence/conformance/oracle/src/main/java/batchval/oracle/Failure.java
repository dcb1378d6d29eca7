package batchval.oracle;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.Errors;

/** A stage's exception as the broker answers it: Errors.forException, -1 for any other one. */
final class Failure {
    static void put(ObjectNode to, Throwable thrown) {
        if (thrown instanceof Reflect.Missing missing)
            throw missing;  // no answer of Kafka
        Throwable main = thrown;
        LogClasses.Refusal refused = LogClasses.Refusal.of(thrown);
        if (refused != null) {
            main = refused.answer();
            ArrayNode indexes = to.putArray("record_errors");
            refused.indexes().forEach(indexes::add);
        }
        Errors error = thrown instanceof Error ? Errors.UNKNOWN_SERVER_ERROR : Errors.forException(main);
        to.put("error", main.getClass().getSimpleName());
        to.put("code", error.code());
        to.put("code_name", error.name());
        // "VM limit": no heap would be large enough, so the answer follows from the bytes
        String message = String.valueOf(main.getMessage());
        if (main instanceof OutOfMemoryError && message.contains("VM limit"))
            to.put("cause", "array_too_long");
        if (main.getCause() != null && main.getCause() != main)
            to.put("cause", main.getCause().getClass().getSimpleName());
    }

    private Failure() { }
}
