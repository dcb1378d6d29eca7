package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** What records say: word-like text, and records of many shapes. */
public final class Content {
    public static final long NOW = 1_700_000_000_000L;
    static final Header[] NO_HEADERS = {};
    static final String[] SHAPES = {"one", "two", "ten", "hundred", "null_keys", "tombstones", "empty_kv", "headers", "tiny", "ts_spread",
        "ts_back", "no_ts", "varint_edges"};
    static final String[] WORDS = {"order", "user", "event", "click", "price", "0001", "true", "null", "eu-west", "ts", "session", "a", "42",
        "kafka", "topic", "id"};
    private static final int[] VARINT_EDGES = {0, 1, 63, 64, 127, 128, 8191, 8192};

    /** A record for Kafka's own builder. */
    public record KeyValue(long timestamp, byte[] key, byte[] value, Header[] headers) { }

    static byte[] text(Random r, int length) {
        StringBuilder s = new StringBuilder();
        while (s.length() < length)
            s.append(WORDS[r.nextInt(WORDS.length)]).append(r.nextInt(4) == 0 ? (char) ('A' + r.nextInt(26)) : ':');
        return cut(s, length);
    }

    /** The same with a random hexadecimal token every few words, so that it compresses like real events. */
    public static byte[] noisyText(Random r, int length) {
        StringBuilder s = new StringBuilder();
        while (s.length() < length) {
            s.append(WORDS[r.nextInt(WORDS.length)]).append('=');
            if (r.nextInt(3) == 0)
                s.append(Integer.toHexString(r.nextInt()));
            s.append(';');
        }
        return cut(s, length);
    }

    private static byte[] cut(StringBuilder s, int length) {
        return Arrays.copyOf(s.toString().getBytes(StandardCharsets.ISO_8859_1), length);
    }

    static byte[] repeat(byte[] block, int length) {
        byte[] a = new byte[length];
        for (int i = 0; i < length; i++)
            a[i] = block[i % block.length];
        return a;
    }

    private static Header[] headers(Random r, int count) {
        Header[] h = new Header[count];
        for (int i = 0; i < count; i++)
            h[i] = new RecordHeader(i % 3 == 0 ? "" : "h" + r.nextInt(9), i % 4 == 1 ? null : text(r, r.nextInt(12)));
        return h;
    }

    static List<KeyValue> records(String shape, Random r, int magic) {
        List<KeyValue> l = new ArrayList<>();
        int count = switch (shape) {
            case "one" -> 1;
            case "two" -> 2;
            case "hundred" -> 100;
            case "tiny" -> 1000;
            case "varint_edges" -> VARINT_EDGES.length;
            default -> 10;
        };
        for (int i = 0; i < count; i++)
            l.add(record(shape, r, magic, i));
        return l;
    }

    private static KeyValue record(String shape, Random r, int magic, int i) {
        long ts = NOW - 1000 + r.nextInt(900);
        byte[] key = text(r, 4 + r.nextInt(8));
        byte[] value = text(r, 10 + r.nextInt(60));
        Header[] headers = NO_HEADERS;
        switch (shape) {
            case "null_keys" -> key = i % 2 == 0 ? null : key;
            case "tombstones" -> value = i % 2 == 1 ? null : value;
            case "empty_kv" -> {
                if (i % 2 == 0)
                    key = new byte[0];
                else
                    value = new byte[0];
            }
            case "headers" -> headers = magic == 2 ? headers(r, 1 + r.nextInt(5)) : NO_HEADERS;
            case "tiny" -> {
                key = null;
                value = new byte[]{(byte) i};
            }
            case "ts_spread" -> ts = NOW - r.nextInt(Integer.MAX_VALUE);
            case "ts_back" -> ts = NOW - 1000L * i;
            case "no_ts" -> ts = -1;
            case "varint_edges" -> value = text(r, VARINT_EDGES[i]);
            default -> { }
        }
        return new KeyValue(ts, key, value, headers);
    }

    /** Records of a good magic-2 batch, not compressed. */
    static byte[] plainBody(Random r, int count) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int i = 0; i < count; i++) {
            V2Record x = new V2Record();
            x.offsetDelta = i;
            x.timestampDelta = r.nextInt(50);
            x.key = text(r, 3);
            x.value = text(r, 12);
            x.write(o);
        }
        return o.toByteArray();
    }

    /** A good magic-2 batch whose every field may then be made wrong. */
    static V2Batch good(Random r, CompressionType c, int count) {
        V2Batch b = new V2Batch().count(count).timestamps(NOW, NOW + 49);
        b.attributes = c.id;
        b.body = Codec.compress(c, 2, plainBody(r, count));
        return b;
    }

    private Content() { }
}
