import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads topics of one partition with the Java consumer of 0.9 and later.
 *
 * consume  the records from offset 0 on: COUNT of each topic, and what comes in the next second
 * group    the next COUNT records of a group, which are committed
 * offsets  the first offset and the end
 * commit   commits OFFSET for a group and asks for it
 */
public final class OldConsumer {
    private static final long POLL_MS = 200;
    private static final int POLLS_AFTER = 5;

    private final Report report;
    private final String operation;
    /** That of the only topic, but for consume. */
    private TopicPartition partition;

    private OldConsumer(String[] args) throws Exception {
        operation = args[0];
        report = new Report(java.util.Arrays.copyOfRange(args, 1, args.length));
        partition = new TopicPartition(report.argument("topic"), 0);
    }

    public static void main(String[] args) throws Exception {
        OldConsumer program = new OldConsumer(args);
        Throwable failure = null;
        try {
            program.run();
        } catch (Throwable error) {
            failure = error;
        }
        program.report.print(failure);
    }

    private void run() throws Exception {
        switch (operation) {
            case "consume":
                for (String topic : report.list("topic")) {
                    partition = new TopicPartition(topic, 0);
                    consume();
                }
                break;
            case "group":
                group();
                break;
            case "offsets":
                report.put("earliest", position("earliest"));
                report.put("latest", position("latest"));
                break;
            case "commit":
                commit();
                break;
            default:
                throw new IllegalArgumentException("unknown operation: " + operation);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String reset) throws Exception {
        Properties properties = report.client();
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        properties.put("key.deserializer", bytes);
        properties.put("value.deserializer", bytes);
        properties.put("auto.offset.reset", reset);
        properties.put("enable.auto.commit", "false");
        properties.put("check.crcs", "true");
        // several requests for each topic
        properties.put("max.partition.fetch.bytes", "32768");
        if (report.argument("group") != null) {
            properties.put("group.id", report.argument("group"));
        }
        return new KafkaConsumer<>(properties);
    }

    private void consume() throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer("earliest");
        consumer.assign(Collections.singletonList(partition));
        consumer.seek(partition, 0);
        long read = 0;
        report.begin();
        for (int after = 0; after < POLLS_AFTER; after += read < report.number("count") ? 0 : 1) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL_MS)) {
                report.add(record.offset(), record.key(), record.value());
                read++;
            }
        }
        consumer.close();
    }

    private void group() throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer("earliest");
        consumer.subscribe(Collections.singletonList(partition.topic()));
        long read = 0;
        while (read < report.number("count")) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL_MS)) {
                if (read < report.number("count")) {
                    report.add(record.offset(), record.key(), record.value());
                    report.put("next", record.offset() + 1);
                    if (++read == report.number("count")) {
                        commit(consumer, record.offset() + 1);
                    }
                }
            }
        }
        consumer.close();
    }

    private void commit(KafkaConsumer<byte[], byte[]> consumer, long offset) {
        consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(offset)));
    }

    private long position(String reset) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(reset);
        consumer.assign(Collections.singletonList(partition));
        long position = consumer.position(partition);
        consumer.close();
        return position;
    }

    private void commit() throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer("earliest");
        consumer.assign(Collections.singletonList(partition));
        commit(consumer, report.number("offset"));
        consumer.close();
        KafkaConsumer<byte[], byte[]> later = consumer("earliest");
        OffsetAndMetadata found = later.committed(partition);
        report.put("committed", found == null ? -1 : found.offset());
        later.close();
    }
}
