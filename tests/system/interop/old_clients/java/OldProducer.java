import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Sends records 0 to COUNT - 1 to each topic with the Java producer of 0.8.2 and later.
 *
 * OldProducer produce bootstrap=B topic=T,... codec=C,... acks=A count=N seconds=S
 */
public final class OldProducer {
    private final Report report;
    private long acked;
    private Throwable failure;

    private OldProducer(Report report) {
        this.report = report;
    }

    public static void main(String[] args) throws Exception {
        Report report = new Report(java.util.Arrays.copyOfRange(args, 1, args.length));
        Properties properties = report.client();
        properties.put("acks", report.argument("acks"));
        properties.put("linger.ms", "5");
        properties.put("retries", "0");
        // 0.8.2 and 0.9 have the first two, later ones the others
        properties.put("metadata.fetch.timeout.ms", "6000");
        properties.put("timeout.ms", "5000");
        properties.put("max.block.ms", "6000");
        properties.put("request.timeout.ms", "6000");
        String bytes = "org.apache.kafka.common.serialization.ByteArraySerializer";
        properties.put("key.serializer", bytes);
        properties.put("value.serializer", bytes);
        OldProducer program = new OldProducer(report);
        report.put("acked", 0);
        String[] codecs = report.list("codec");
        for (int i = 0; i < codecs.length; i++) {
            properties.put("compression.type", codecs[i]);
            try {
                program.send(properties, report.list("topic")[i]);
            } catch (Throwable error) {
                program.failure = error;
            }
        }
        report.print(program.failure);
    }

    private void send(Properties properties, String topic) throws Exception {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (long number = 0; number < report.number("count"); number++) {
            sent.add(producer.send(new ProducerRecord<>(
                    topic, Report.key(number), Report.value(number))));
        }
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
                report.put("acked", ++acked);
            } catch (ExecutionException error) {
                failure = error;
            }
        }
        producer.close();
    }
}
