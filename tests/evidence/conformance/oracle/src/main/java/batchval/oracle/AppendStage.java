package batchval.oracle;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestUtils;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/**
 * The whole way of records into Kafka's log, by the case's origin:
 *   CLIENT        KafkaApis' first look (RequestUtils.hasTransactionalRecords),
 *                 ProduceRequest.validateRecords, UnifiedLog.appendAsLeader
 *   COORDINATOR   UnifiedLog.appendAsLeader
 *   RAFT_LEADER   UnifiedLog.appendAsLeader, as the Raft log calls it
 *   REPLICATION   UnifiedLog.appendAsFollower
 * The answer of a success holds the log's end offset and the bytes that were read back from the
 * log.
 */
final class AppendStage {
    private static final int WHOLE_UP_TO = 256;
    private static final int HEADER_BYTES = 61;
    private static RealLog log = null;

    /**
     * A broker's log writes magic 2, and starts at offset 0 or above: other cases have no answer
     * here.
     */
    static void answer(ObjectNode to, byte[] input, Settings s) {
        if (s.toMagic() != RecordBatch.CURRENT_MAGIC_VALUE || s.firstOffset() < 0) {
            to.put("skipped", true);
            return;
        }
        if (log == null)
            log = new RealLog();  // what fails here is no answer of Kafka
        try {
            if (s.origin() == Origin.CLIENT) {
                RequestUtils.hasTransactionalRecords(
                    Requests.of(s.produceVersion(), List.of(input)));
                ProduceRequest.validateRecords(s.produceVersion(), Requests.records(input));
            }
            accepted(to, input, log.append(input, s));
        } catch (Throwable t) {
            Failure.put(to, t);
        }
    }

    private static void accepted(ObjectNode to, byte[] input, byte[] stored) {
        to.put("ok", true);
        to.put("next_offset", log.endOffset());
        to.put("stored_len", stored.length);
        to.put("stored_sha256", Digest.ofBytes(stored));
        if (stored.length <= WHOLE_UP_TO && !isPrefix(stored, input))
            to.put("stored_hex", HexFormat.of().formatHex(stored));
        if (stored.length > HEADER_BYTES && !samePayload(stored, input))
            to.put("stored_logical_sha256", Digest.ofRecords(Requests.records(stored)));
    }

    private static boolean isPrefix(byte[] stored, byte[] input) {
        return stored.length <= input.length
            && Arrays.equals(stored, 0, stored.length, input, 0, stored.length);
    }

    /**
     * False where the batch was built anew: its bytes may be another library's, its records may
     * not.
     */
    private static boolean samePayload(byte[] stored, byte[] input) {
        return stored.length <= input.length
            && Arrays.equals(stored, HEADER_BYTES, stored.length,
                input, HEADER_BYTES, stored.length);
    }

    private AppendStage() { }
}
