import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Times KafkaProducer, with or without the agent: the sink that it sends to is in this JVM, and its
 * threads are not counted. A line of output: codec, records a second, CPU ns a record, claims.
 *
 * <pre>
 * java [-javaagent:AGENT] -cp JARS ProducerCost.java RECORDS WARM_UP ROUNDS CODECS [ids]
 * </pre>
 *
 * With {@code ids} each value begins with a byte 0 and one of three schema ids.
 */
public class ProducerCost {
    static final int VALUES = 4096;
    static final int[] SCHEMA_IDS = {7, 300, 100_001};
    /** The bytes of a block of claims without schema ids. */
    static final int BLOCK = 23;
    /** Where a size byte stands in front of a block, by carrier; a tag's size counts a crc too. */
    static final Pattern CLAIMS = Pattern.compile("(?<payload>\\[\\*M\u0018(?<zstd>.)\0\0\0BV\u0002"
        + "|BV(?<gzip>.)\0\u0002)|\u0001\u00f6\u00c4\u0001(?<tag>.)\u0002", Pattern.DOTALL);

    public static void main(String[] args) throws Exception {
        int records = Integer.parseInt(args[0]);
        int warmUp = Integer.parseInt(args[1]);
        int rounds = Integer.parseInt(args[2]);
        Sink sink = new Sink();
        byte[][] values = values(args.length > 4);
        for (String codec : args[3].split(","))
            try (Producer producer = new Producer(codec, sink.port())) {
                for (int round = -warmUp; round < rounds; round++) {
                    String line = producer.turn(values, records, sink);
                    if (round >= 0)
                        System.out.println(codec + "\t" + line);
                }
            }
        Runtime.getRuntime().halt(0);
    }

    /** Return values of 200 to 600 bytes that compress as JSON does. */
    static byte[][] values(boolean ids) {
        Random random = new Random(1);
        byte[][] values = new byte[VALUES][];
        for (int i = 0; i < VALUES; i++) {
            StringBuilder text = new StringBuilder("{");
            for (int fields = 6 + random.nextInt(12); fields > 0; fields--)
                text.append("\"field_").append(random.nextInt(20)).append("\": \"")
                    .append(Long.toString(random.nextLong() >>> 20, 36)).append("\", ");
            byte[] value = text.append("\"number\": ").append(i).append('}').toString()
                .getBytes(StandardCharsets.UTF_8);
            values[i] = !ids ? value : ByteBuffer.allocate(5 + value.length).put((byte) 0)
                .putInt(SCHEMA_IDS[random.nextInt(SCHEMA_IDS.length)]).put(value).array();
        }
        return values;
    }

    /** A producer and its network thread. */
    static final class Producer implements AutoCloseable {
        private final KafkaProducer<byte[], byte[]> producer;
        private final Thread network;
        private int at;

        Producer(String codec, int port) {
            String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
            Set<Thread> before = Thread.getAllStackTraces().keySet();
            producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", "127.0.0.1:" + port, "compression.type", codec,
                "batch.size", 64 << 10, "linger.ms", 50, "acks", "1",
                "enable.idempotence", false, "client.id", codec,
                "key.serializer", serializer, "value.serializer", serializer,
                "enable.metrics.push", false));
            Thread found = null;
            for (Thread thread : Thread.getAllStackTraces().keySet())
                if (!before.contains(thread) && thread.getName().contains("network-thread"))
                    found = thread;
            network = found;
        }

        /** Send so many records; records a second, CPU ns a record, and where claims are. */
        String turn(byte[][] values, int records, Sink sink) {
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            long own = Thread.currentThread().getId();
            long cpu = threads.getThreadCpuTime(own) + threads.getThreadCpuTime(network.getId());
            long started = System.nanoTime();
            sink.longest = 0;
            for (int i = 0; i < records; i++, at++)
                producer.send(
                    new ProducerRecord<>("t", values[(at >>> 3) % 64], values[at % VALUES]));
            producer.flush();
            long wall = System.nanoTime() - started;
            cpu = threads.getThreadCpuTime(own) + threads.getThreadCpuTime(network.getId()) - cpu;
            return records * 1_000_000_000L / wall + "\t" + (double) cpu / records + "\t"
                + sink.claims();
        }

        @Override
        public void close() {
            producer.close();
        }
    }

    /**
     * A broker that takes Produce 9 for partition 0 of topic "t", and looks at nothing else than
     * the places of claims.
     */
    static final class Sink {
        private final ServerSocket server =
            new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        volatile int longest;
        private volatile byte[] last = new byte[0];

        Sink() throws IOException {
            start(() -> {
                while (true) {
                    Socket socket = server.accept();
                    socket.setTcpNoDelay(true);
                    start(() -> serve(socket));
                }
            });
        }

        int port() {
            return server.getLocalPort();
        }

        private interface Work {
            void run() throws IOException;
        }

        private static void start(Work work) {
            Thread thread = new Thread(() -> {
                try {
                    work.run();
                } catch (IOException ended) {
                    // the producer has closed the connection
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        /**
         * Where the last long request has claims: "tag", "payload" or "none", with " ids" where
         * they state schema ids.
         */
        String claims() {
            Matcher found = CLAIMS.matcher(new String(last, StandardCharsets.ISO_8859_1));
            if (!found.find())
                return "none";
            String carrier = found.group("payload") == null ? "tag" : "payload";
            int block = found.group("tag") != null ? found.group("tag").charAt(0) - 4
                : found.group("zstd") != null ? found.group("zstd").charAt(0) - 2
                : found.group("gzip").charAt(0);
            return block > BLOCK ? carrier + " ids" : carrier;
        }

        private void serve(Socket socket) throws IOException {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            while (true) {
                byte[] request = new byte[in.readInt()];
                in.readFully(request);
                ByteBuffer header = ByteBuffer.wrap(request);
                int api = header.getShort();
                int version = header.getShort();
                ByteBuffer answer = ByteBuffer.allocate(256).putInt(header.getInt());
                switch (api) {
                    case 0 -> produced(request, answer);
                    case 3 -> metadata(answer);
                    default -> answer.putShort((short) (version == 0 ? 0 : 35)).putInt(3)
                        .put(new byte[] {0, 0, 0, 9, 0, 9, 0, 3, 0, 1, 0, 1, 0, 18, 0, 0, 0, 0});
                }
                out.writeInt(answer.position());
                out.write(answer.array(), 0, answer.position());
                out.flush();
            }
        }

        private void produced(byte[] request, ByteBuffer answer) {
            if (request.length > longest) {
                longest = request.length;
                last = request;
            }
            answer.put((byte) 0).put((byte) 2).put((byte) 2).put((byte) 't').put((byte) 2)
                .putInt(0).putShort((short) 0).putLong(0).putLong(-1).putLong(0)
                .put((byte) 1).put((byte) 0).put((byte) 0).put((byte) 0).putInt(0).put((byte) 0);
        }

        private void metadata(ByteBuffer answer) {
            answer.putInt(1).putInt(1).putShort((short) 9).put("127.0.0.1".getBytes())
                .putInt(port()).putShort((short) -1).putInt(1)
                .putInt(1).putShort((short) 0).putShort((short) 1).put((byte) 't').put((byte) 0)
                .putInt(1).putShort((short) 0).putInt(0).putInt(1).putInt(1).putInt(1)
                .putInt(1).putInt(1);
        }
    }
}
