package batchval.oracle;

import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/** JSON lines: plain, gzip by the suffix .gz, "-" for the standard streams. */
public final class Json {
    /** A bomb's batch_hex is longer than Jackson's default limit for strings. */
    public static final ObjectMapper MAPPER = new ObjectMapper(JsonFactory.builder()
        .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(1 << 28).build()).build());

    public static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static BufferedReader open(String path) throws IOException {
        InputStream in = path.equals("-") ? System.in : new FileInputStream(path);
        if (path.endsWith(".gz"))
            in = new GZIPInputStream(in, 1 << 16);
        return new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8), 1 << 16);
    }

    public static OutputStream create(String path) throws IOException {
        if (path.equals("-"))
            return new BufferedOutputStream(System.out, 1 << 16);
        OutputStream out = new BufferedOutputStream(new FileOutputStream(path), 1 << 16);
        return path.endsWith(".gz") ? new GZIPOutputStream(out, 1 << 16) : out;
    }

    public static void line(OutputStream to, ObjectNode node) throws IOException {
        to.write(MAPPER.writeValueAsBytes(node));
        to.write('\n');
    }

    private Json() { }
}
