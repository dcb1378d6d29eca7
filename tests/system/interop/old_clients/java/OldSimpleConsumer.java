import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/**
 * Reads topics of one partition with the SimpleConsumer of 0.8.2.
 *
 * consume, offsets and commit are those of OldConsumer. OffsetCommit and OffsetFetch have version
 * 1, whose offsets Kafka keeps: those of version 0 went to ZooKeeper.
 */
public final class OldSimpleConsumer {
    private static final String CLIENT = "old-simple-consumer";
    private static final int TIMEOUT_MS = 6000;
    private static final int FETCH_BYTES = 32768;
    private static final int EMPTY_ANSWERS = 3;

    private final Report report;
    /** That of the only topic, but for consume. */
    private TopicAndPartition partition;
    private SimpleConsumer consumer;

    private OldSimpleConsumer(String[] args) throws Exception {
        report = new Report(java.util.Arrays.copyOfRange(args, 1, args.length));
        partition = new TopicAndPartition(report.list("topic")[0], 0);
    }

    public static void main(String[] args) throws Exception {
        OldSimpleConsumer program = new OldSimpleConsumer(args);
        Throwable failure = null;
        try {
            program.run(args[0]);
        } catch (Throwable error) {
            failure = error;
        }
        program.report.print(failure);
    }

    private void run(String operation) throws Exception {
        String[] address = report.argument("bootstrap").split(":");
        consumer = connected(address[0], Integer.parseInt(address[1]));
        TopicMetadata metadata = consumer.send(new TopicMetadataRequest(
                Collections.singletonList(partition.topic()))).topicsMetadata().get(0);
        check(metadata.errorCode());
        PartitionMetadata known = metadata.partitionsMetadata().get(0);
        check(known.errorCode());
        consumer.close();
        consumer = connected(known.leader().host(), known.leader().port());
        switch (operation) {
            case "consume":
                for (String topic : report.list("topic")) {
                    partition = new TopicAndPartition(topic, 0);
                    consume();
                }
                break;
            case "offsets":
                report.put("earliest", offset(kafka.api.OffsetRequest.EarliestTime()));
                report.put("latest", offset(kafka.api.OffsetRequest.LatestTime()));
                break;
            case "commit":
                commit();
                break;
            default:
                throw new IllegalArgumentException("unknown operation: " + operation);
        }
        consumer.close();
    }

    private static SimpleConsumer connected(String host, int port) {
        return new SimpleConsumer(host, port, TIMEOUT_MS, 65536, CLIENT);
    }

    private static void check(short code) {
        if (code != 0) {
            throw new IllegalStateException("error code " + code);
        }
    }

    private void consume() {
        long offset = offset(kafka.api.OffsetRequest.EarliestTime());
        int empty = 0;
        report.begin();
        while (empty < EMPTY_ANSWERS) {
            FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId(CLIENT)
                    .maxWait(200).minBytes(1).addFetch(partition.topic(), 0, offset, FETCH_BYTES)
                    .build());
            check(response.errorCode(partition.topic(), 0));
            empty++;
            for (MessageAndOffset message : response.messageSet(partition.topic(), 0)) {
                // a compressed message is sent whole, from before the offset that was asked for
                if (message.offset() >= offset) {
                    report.add(message.offset(), bytes(message.message().key()),
                            bytes(message.message().payload()));
                    offset = message.nextOffset();
                    empty = 0;
                }
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copied = new byte[buffer.remaining()];
        buffer.get(copied);
        return copied;
    }

    private long offset(long time) {
        OffsetRequest request = new OffsetRequest(Collections.singletonMap(partition,
                new PartitionOffsetRequestInfo(time, 1)), kafka.api.OffsetRequest.CurrentVersion(),
                CLIENT);
        kafka.javaapi.OffsetResponse response = consumer.getOffsetsBefore(request);
        check(response.errorCode(partition.topic(), 0));
        return response.offsets(partition.topic(), 0)[0];
    }

    private void commit() {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        offsets.put(partition, OffsetAndMetadata.apply(report.number("offset"), "", -1));
        kafka.javaapi.OffsetCommitResponse committed = consumer.commitOffsets(
                new OffsetCommitRequest(report.argument("group"), offsets, 1, CLIENT, (short) 1));
        check((Short) committed.errors().get(partition));
        OffsetMetadataAndError found = consumer.fetchOffsets(new OffsetFetchRequest(
                report.argument("group"), Collections.singletonList(partition), (short) 1, 2,
                CLIENT)).offsets().get(partition);
        check(found.error());
        report.put("committed", found.offset());
    }
}
