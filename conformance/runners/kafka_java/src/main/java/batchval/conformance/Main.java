package batchval.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.storage.internals.log.RecordValidationException;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** A runner for kafka-clients (profile reader) and for LogValidator (profile broker). */
public final class Main {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** Judges one case a line. */
    public static void main(String[] args) throws IOException {
        BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(MAPPER.writeValueAsString(judge(MAPPER.readTree(line))));
            System.out.flush();
        }
    }

    private static ObjectNode judge(JsonNode asked) throws IOException {
        ObjectNode verdict = MAPPER.createObjectNode().put("id", asked.get("id").asText());
        byte[] batch = asked.get("batch").binaryValue();
        try {
            if (asked.get("profile").asText().equals("reader"))
                return verdict.put("accept", true).put("records", Reader.records(batch));
            String skip = Broker.append(batch, asked.get("topic"), asked.get("append"));
            return skip == null ? verdict.put("accept", true) : verdict.put("skip", skip);
        } catch (Exception | OutOfMemoryError e) {
            return verdict.put("accept", false).put("error", error(e));
        }
    }

    /** Returns the name of the error code that a broker answers. */
    private static String error(Throwable thrown) {
        Throwable cause = thrown instanceof RecordValidationException e
                ? e.invalidException() : thrown;
        return (cause instanceof Error
                ? Errors.UNKNOWN_SERVER_ERROR : Errors.forException(cause)).name();
    }

    private Main() { }
}
