package batchval.oracle;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** A stage's exception as the broker answers it: Errors.forException, -1 for any other one. */
final class Failure {
    static void put(ObjectNode to, Throwable thrown) {
        Throwable main = thrown;
        if (thrown instanceof RecordValidationException refused) {
            main = refused.invalidException();
            ArrayNode indexes = to.putArray("record_errors");
            for (ProduceResponse.RecordError e : refused.recordErrors())
                indexes.add(e.batchIndex);
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
