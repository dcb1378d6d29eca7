package batchval.oracle;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

import java.io.IOException;
import java.io.OutputStream;

/** errors [OUT]: Kafka's Errors, one line each, by code. */
final class ErrorsCommand {
    static void run(String out) throws IOException {
        try (OutputStream to = Json.create(out)) {
            for (Errors e : Errors.values())
                Json.line(to, Json.object().put("name", e.name()).put("code", e.code())
                    .put("retriable", e.exception() instanceof RetriableException).put("message", e.message()));
        }
    }

    private ErrorsCommand() { }
}
