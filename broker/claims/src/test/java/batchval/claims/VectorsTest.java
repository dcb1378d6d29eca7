package batchval.claims;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/** Each line of fixtures/claims. */
class VectorsTest {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private static List<JsonNode> lines(String name) throws IOException {
        List<JsonNode> lines = new ArrayList<>();
        Path file = Path.of(System.getProperty("batchval.fixtures"), name + ".jsonl");
        for (String line : Files.readAllLines(file, StandardCharsets.US_ASCII))
            lines.add(MAPPER.readTree(line));
        assertFalse(lines.isEmpty());
        return lines;
    }

    private static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    private static Claims claims(JsonNode of) {
        if (!of.isObject())
            return null;
        long min = of.get("batch_min_timestamp").asLong();
        int count = of.get("records_number").asInt();
        byte nullKeys = (byte) of.get("null_keys").asInt();
        if (of.path("version").asInt() == 1)
            return Claims.version1(min, count, nullKeys);
        List<Claims.Field> fields = new ArrayList<>();
        for (JsonNode field : of.get("fields"))
            fields.add(new Claims.Field((int) field.get(0).asLong(), bytes(field.get(1))));
        return new Claims(2, min, count, nullKeys, of.get("uncompressed_bytes").asInt(),
            of.get("max_record_bytes").asInt(), fields);
    }

    private static boolean isValid(byte[] batch) {
        return Crc32c.of(batch, Batch.ATTRIBUTES, batch.length)
            == ByteBuffer.wrap(batch).getInt(Batch.CRC);
    }

    @Test
    void blocks() throws IOException {
        for (JsonNode line : lines("blocks")) {
            String name = line.get("name").asText();
            byte[] block = bytes(line.get("block"));
            Claims expected = claims(line.get("claims"));
            assertEquals(expected, Block.decode(block), name);
            if (expected != null)
                assertArrayEquals(block, Block.encode(expected), name);
        }
    }

    @Test
    void schemaIds() throws IOException {
        for (JsonNode line : lines("schema_ids")) {
            String name = line.get("name").asText();
            byte[] content = bytes(line.get("content"));
            Claims claims = new Claims(2, 0, 1, Claims.NO_KEY_NULL, 70, 9,
                List.of(new Claims.Field(SchemaIds.FIELD, content)));
            SchemaIds found = Block.decode(Block.encode(claims)).schemaIds();
            if (line.get("schema_ids").isNull()) {
                assertNull(found, name);
                continue;
            }
            int[] ids = MAPPER.convertValue(line.get("schema_ids"), int[].class);
            assertArrayEquals(ids, found.ids(), name);
            assertEquals(line.get("no_value_null").asBoolean(), found.noValueNull(), name);
            assertArrayEquals(content, found.encode(), name);
        }
    }

    @Test
    void carriers() throws IOException {
        for (JsonNode line : lines("carriers")) {
            String name = line.get("name").asText();
            byte[] batch = bytes(line.get("batch"));
            Claims claims = claims(line.get("claims"));
            int crc = ByteBuffer.wrap(batch).getInt(Batch.CRC);
            byte[] tag = bytes(line.get("tag"));
            assertArrayEquals(tag, new Tag(claims, crc).encode(), name);
            assertEquals(new Tag(claims, crc), Tag.decode(tag), name);
            byte[] carrying = bytes(line.get("payload_batch"));
            assertArrayEquals(carrying, Carriers.attach(batch, claims), name);
            assertSame(batch, Carriers.strip(batch), name);
            if (carrying != null) {
                assertArrayEquals(batch, Carriers.strip(carrying), name);
                assertEquals(claims, Reading.of(ByteBuffer.wrap(carrying), null).claims(), name);
                // a batch whose crc is wrong keeps a wrong one
                assertEquals(isValid(batch), isValid(carrying), name);
            }
        }
    }

    @Test
    void readings() throws IOException {
        for (JsonNode line : lines("readings")) {
            String name = line.get("name").asText();
            JsonNode reads = line.get("reads");
            byte[] batch = bytes(line.get("batch"));
            // a batch inside a larger buffer, as in a request
            ByteBuffer buffer = ByteBuffer.allocate(batch.length + 7).position(7).put(batch);
            Reading found = Reading.of(buffer.position(7), bytes(line.get("tag")));
            assertEquals(7, buffer.position(), name);
            assertEquals(claims(reads), found.claims(), name);
            Reading.Kind kind = reads.isObject() ? Reading.Kind.CLAIMS
                : reads.asText().equals("none") ? Reading.Kind.NONE : Reading.Kind.UNBOUND;
            assertEquals(kind, found.kind(), name);
        }
    }

    @Test
    void ledger() throws IOException {
        for (JsonNode line : lines("ledger")) {
            Ledger ledger = new Ledger(bytes(line.get("secret")), line.get("first_checked").asInt(),
                line.get("demotion_ms").asLong(), 10);
            Policy policy = Policy.parse(line.get("policy").asText());
            int step = 0;
            for (JsonNode s : line.get("steps")) {
                String where = line.get("name").asText() + ", step " + step++;
                long now = s.get("now_ms").asLong();
                Ledger.Sender sender = ledger.sender(line.get("sender").asText(), now);
                Ledger.Decision decision = sender.decide(policy, (int) s.get("crc").asLong(), now);
                assertEquals(s.get("decision").asText().toUpperCase(), decision.name(), where);
                if (!s.get("answer").isNull())
                    sender.note(
                        Ledger.Answer.valueOf(s.get("answer").asText().toUpperCase()), now);
            }
        }
    }

    @Test
    void aChangedTagIsAnotherBatchs() throws IOException {
        JsonNode line = lines("carriers").get(0);
        byte[] tag = bytes(line.get("tag"));
        tag[tag.length - 1] ^= 1;
        Reading found = Reading.of(ByteBuffer.wrap(bytes(line.get("batch"))), tag);
        assertEquals(Reading.Kind.UNBOUND, found.kind());
        assertNull(found.claims());
        assertNotEquals(claims(line.get("claims")), found.claims());
    }
}
