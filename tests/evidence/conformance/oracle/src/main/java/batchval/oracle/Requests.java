package batchval.oracle;

import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;

import java.nio.ByteBuffer;
import java.util.List;

/** Produce requests that hold a case's records. */
final class Requests {
    static MemoryRecords records(byte[] input) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(input));
    }

    /** A produce request of one topic with these partitions. */
    static ProduceRequest of(short version, List<byte[]> partitions) {
        TopicProduceData topic = new TopicProduceData().setName("t");
        for (int i = 0; i < partitions.size(); i++)
            topic.partitionData().add(
                new PartitionProduceData().setIndex(i).setRecords(records(partitions.get(i))));
        ProduceRequestData data = new ProduceRequestData().setAcks((short) -1);
        data.topicData().add(topic);
        return new ProduceRequest(data, version);
    }

    private Requests() { }
}
