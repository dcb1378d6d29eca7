import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

import javax.management.JMException;
import javax.management.ObjectName;

/**
 * Parses one Produce request many times, as a broker does, and prints what is left of it: objects
 * of the agent and of Kafka's records, then bytes of the heap at the half and at the end.
 *
 * <pre>
 * java -javaagent:AGENT.jar=policy=verify -cp ORACLE.jar Requests.java BODY VERSION COUNT
 * CARRIED \t RECORDS \t HEAP HALF WAY \t HEAP
 * </pre>
 */
public final class Requests {
    private static long parsed = 0;

    private static void parse(ByteBuffer body, RequestContext context) {
        ProduceRequest request = (ProduceRequest) context.parseRequest(body.duplicate()).request;
        request.data().topicData().forEach(topic -> topic.partitionData().forEach(partition ->
            parsed += partition.unknownTaggedFields().size()));
    }

    /** Return how many objects of a class the heap has, after a full collection. */
    private static long instances(String name) throws JMException {
        String histogram = (String) ManagementFactory.getPlatformMBeanServer().invoke(
            new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram",
            new Object[] {new String[0]}, new String[] {String[].class.getName()});
        for (String line : histogram.split("\n")) {
            String[] words = line.trim().split("\\s+");
            if (words.length >= 4 && words[3].equals(name))
                return Long.parseLong(words[1]);
        }
        return 0;
    }

    private static long heap() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    public static void main(String[] arguments) throws IOException, JMException {
        ByteBuffer body = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        short version = Short.parseShort(arguments[1]);
        long count = Long.parseLong(arguments[2]);
        RequestContext context = new RequestContext(
            new RequestHeader(ApiKeys.PRODUCE, version, "client", 1), "connection",
            InetAddress.getLoopbackAddress(), new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "a"),
            ListenerName.forSecurityProtocol(SecurityProtocol.PLAINTEXT),
            SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
        ProduceRequest kept = (ProduceRequest) context.parseRequest(body.duplicate()).request;
        long half = 0;
        for (long n = 0; n < count; n++) {
            if (n == count / 2)
                half = heap();
            parse(body, context);
        }
        long end = heap();
        if (parsed != count)
            throw new IllegalStateException(parsed + " tags of " + count + " requests");
        Object records = kept.data().topicData().iterator().next().partitionData().get(0).records();
        System.out.println(instances("batchval.broker.hook.Carried") + "\t"
            + instances(records.getClass().getName()) + "\t" + half + "\t" + end);
    }

    private Requests() { }
}
