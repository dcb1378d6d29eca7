package batchval.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** utf8: each line of hex as it comes out of a Java String, which Kafka makes of a header key. */
final class Utf8Command {
    static void run(String in, String out) throws IOException {
        try (BufferedReader lines = Json.open(in); OutputStream to = Json.create(out)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8);
                String hex = HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
                to.write((hex + "\n").getBytes(StandardCharsets.US_ASCII));
            }
        }
    }

    private Utf8Command() { }
}
