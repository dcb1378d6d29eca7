package batchval.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.ProduceResponseData.PartitionProduceResponse;
import org.apache.kafka.common.message.ProduceResponseData.TopicProduceResponse;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestUtils;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/**
 * produce IN OUT: what a broker answers to whole produce requests before it appends anything. A
 * line holds "produce_version" and "partitions", the records of each as hexadecimal; "codes" is
 * added, one for each partition.
 *
 * The order is that of KafkaApis.handleProduceRequest for a client that may do everything: whether
 * any batch is transactional (RequestUtils), then each partition's own check. An API exception of
 * that check is the partition's; every other exception fails the request, and
 * ProduceRequest.getErrorResponse says what each partition gets.
 */
final class ProduceCommand {
    static void run(String in, String out) throws IOException {
        try (BufferedReader lines = Json.open(in); OutputStream to = Json.create(out)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                ObjectNode c = (ObjectNode) Json.MAPPER.readTree(line);
                List<byte[]> partitions = new ArrayList<>();
                for (JsonNode hex : c.get("partitions"))
                    partitions.add(HexFormat.of().parseHex(hex.asText()));
                ArrayNode codes = c.putArray("codes");
                for (short code : codes((short) c.path("produce_version").asInt(9), partitions))
                    codes.add(code);
                Json.line(to, c);
            }
        }
    }

    private static short[] codes(short version, List<byte[]> partitions) {
        ProduceRequest request = Requests.of(version, partitions);
        short[] codes = new short[partitions.size()];
        try {
            RequestUtils.hasTransactionalRecords(request);
            for (int i = 0; i < codes.length; i++)
                codes[i] = own(version, partitions.get(i));
        } catch (Throwable t) {
            ProduceResponse response = (ProduceResponse) request.getErrorResponse(0, t);
            for (TopicProduceResponse topic : response.data().responses())
                for (PartitionProduceResponse partition : topic.partitionResponses())
                    codes[partition.index()] = partition.errorCode();
        }
        return codes;
    }

    private static short own(short version, byte[] records) {
        try {
            ProduceRequest.validateRecords(version, Requests.records(records));
            return Errors.NONE.code();
        } catch (ApiException e) {
            return Errors.forException(e).code();
        }
    }

    private ProduceCommand() { }
}
