package batchval.oracle;

import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.util.HexFormat;

/** answer IN OUT: each line with Kafka's answers added as "expect". With "-" as OUT every answer is flushed. */
final class AnswerCommand {
    static void run(String in, String out) throws IOException {
        try (BufferedReader lines = Json.open(in); OutputStream to = Json.create(out)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.isBlank())
                    continue;
                ObjectNode c = (ObjectNode) Json.MAPPER.readTree(line);
                answer(c);
                Json.line(to, c);
                if (out.equals("-"))
                    to.flush();
            }
        }
    }

    /** Sets expect, and kafka_version where it is not the default. */
    private static void answer(ObjectNode c) {
        String asked = c.path("kafka_version").asText(Kafka.RELEASE);
        if (!asked.equals(Kafka.RELEASE))
            throw new IllegalArgumentException("case " + c.path("id").asText() + " asks Kafka "
                + asked + ", this oracle is " + Kafka.RELEASE);
        if (!Kafka.RELEASE.equals(Kafka.DEFAULT_RELEASE))
            c.put("kafka_version", Kafka.RELEASE);
        c.set("expect", of(c));
    }

    static ObjectNode of(ObjectNode c) {
        ObjectNode cfg = c.get("cfg") instanceof ObjectNode settings ? settings : Json.object();
        return Answer.to(HexFormat.of().parseHex(c.get("batch_hex").asText()), cfg);
    }

    private AnswerCommand() { }
}
