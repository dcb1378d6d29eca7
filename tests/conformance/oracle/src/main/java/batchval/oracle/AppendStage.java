package batchval.oracle;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestUtils;
import org.apache.kafka.storage.internals.log.AppendOrigin;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/**
 * The whole way of records into Kafka's log, by the case's origin:
 *   CLIENT        KafkaApis' first look (RequestUtils.hasTransactionalRecords), ProduceRequest.validateRecords, UnifiedLog.appendAsLeader
 *   COORDINATOR   UnifiedLog.appendAsLeader
 *   RAFT_LEADER   UnifiedLog.appendAsLeader, as the Raft log calls it
 *   REPLICATION   UnifiedLog.appendAsFollower
 * The answer of a success holds the log's end offset and the bytes that were read back from the log.
 */
final class AppendStage {
    private static final int WHOLE_UP_TO = 256;
    private static final int HEADER_BYTES = 61;
    private static RealLog log = null;

    /** A broker's log writes magic 2, and starts at offset 0 or above: other cases have no answer here. */
    static void answer(ObjectNode to, byte[] input, Settings s) {
        if (s.toMagic() != RecordBatch.CURRENT_MAGIC_VALUE || s.firstOffset() < 0) {
            to.put("skipped", true);
            return;
        }
        try {
            if (s.origin() == AppendOrigin.CLIENT) {
                RequestUtils.hasTransactionalRecords(request(s.produceVersion(), List.of(input)));
                ProduceRequest.validateRecords(s.produceVersion(), records(input));
            }
            if (log == null)
                log = new RealLog();
            accepted(to, input, log.append(input, s));
        } catch (Throwable t) {
            Failure.put(to, t);
        }
    }

    static MemoryRecords records(byte[] input) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(input));
    }

    /** A produce request of one topic with these partitions. */
    static ProduceRequest request(short version, List<byte[]> partitions) {
        TopicProduceData topic = new TopicProduceData().setName("t");
        for (int i = 0; i < partitions.size(); i++)
            topic.partitionData().add(new PartitionProduceData().setIndex(i).setRecords(records(partitions.get(i))));
        ProduceRequestData data = new ProduceRequestData().setAcks((short) -1);
        data.topicData().add(topic);
        return new ProduceRequest(data, version);
    }

    private static void accepted(ObjectNode to, byte[] input, byte[] stored) {
        to.put("ok", true);
        to.put("next_offset", log.endOffset());
        to.put("stored_len", stored.length);
        to.put("stored_sha256", Digest.ofBytes(stored));
        if (stored.length <= WHOLE_UP_TO && !isPrefix(stored, input))
            to.put("stored_hex", HexFormat.of().formatHex(stored));
        if (stored.length > HEADER_BYTES && !samePayload(stored, input))
            to.put("stored_logical_sha256", Digest.ofRecords(records(stored)));
    }

    private static boolean isPrefix(byte[] stored, byte[] input) {
        return stored.length <= input.length && Arrays.equals(stored, 0, stored.length, input, 0, stored.length);
    }

    /** False where the batch was built anew: its bytes may be another library's, its records may not. */
    private static boolean samePayload(byte[] stored, byte[] input) {
        return stored.length <= input.length
            && Arrays.equals(stored, HEADER_BYTES, stored.length, input, HEADER_BYTES, stored.length);
    }

    private AppendStage() { }
}
