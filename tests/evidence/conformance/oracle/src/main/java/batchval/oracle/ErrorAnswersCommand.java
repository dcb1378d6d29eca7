package batchval.oracle;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestAndSize;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * error-answers IN OUT: what a broker answers to requests that fail as a whole
 * (AbstractRequest.getErrorResponse). A line holds "key", "version", "code" and "request", the
 * body without its header as hexadecimal; "response" is added, a body too, or null where Kafka
 * answers nothing, or "refused": why Kafka cannot read the request.
 */
final class ErrorAnswersCommand {
    static void run(String in, String out) throws Exception {
        Method parse = Arrays.stream(AbstractRequest.class.getMethods())
            .filter(m -> m.getName().equals("parseRequest") && m.getParameterCount() == 3)
            .findFirst().orElseThrow();
        try (BufferedReader lines = Json.open(in); OutputStream to = Json.create(out)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                ObjectNode c = (ObjectNode) Json.MAPPER.readTree(line);
                answer(parse, c);
                Json.line(to, c);
            }
        }
    }

    private static void answer(Method parse, ObjectNode c) throws Exception {
        ApiKeys key = ApiKeys.forId(c.get("key").asInt());
        short version = (short) c.get("version").asInt();
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(c.get("request").asText()));
        boolean isBuffer = parse.getParameterTypes()[2] == ByteBuffer.class;
        Object parsed;
        try {
            Object from = isBuffer ? body : new ByteBufferAccessor(body);
            parsed = parse.invoke(null, key, version, from);
        } catch (InvocationTargetException e) {
            c.put("refused", e.getCause().toString());
            return;
        }
        AbstractRequest request =
            parsed instanceof RequestAndSize both ? both.request : (AbstractRequest) parsed;
        Throwable why = Errors.forCode((short) c.get("code").asInt()).exception();
        AbstractResponse response;
        try {
            response = request.getErrorResponse(0, why);
        } catch (NullPointerException e) { // DescribeUserScramCredentials for all users
            c.put("refused", e.toString());
            return;
        }
        if (response == null) {
            c.putNull("response");
            return;
        }
        c.put("response", HexFormat.of().formatHex(written(response.data(), version)));
    }

    private static byte[] written(Message message, short version) throws IOException {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer to = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(to), cache, version);
        return to.array();
    }

    private ErrorAnswersCommand() { }
}
