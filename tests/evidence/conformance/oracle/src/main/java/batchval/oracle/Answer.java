package batchval.oracle;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;

/**
 * Kafka's answer to one case, as a corpus line's "expect". Four stages are asked independently of
 * each other:
 *   request   ProduceRequest.validateRecords
 *   analyze   the broker's batch loop (BatchLoop)
 *   validate  LogValidator.validateMessagesAndAssignOffsets, with the codec that the batch loop
 *             found, or cfg.source
 *   append    the whole way into a real log (AppendStage)
 * "final" is the first of the other three that refuses in the order of a broker, "resize" where
 * only the rebuilt batch is too large, "nothing_to_append" where no whole batch is there, or "ok".
 */
public final class Answer {
    private static final int WHOLE_OUTPUT_UP_TO = 256;
    private static final int HEADER_BYTES = 61;
    private static final int BATCHES_DESCRIBED = 4;

    private final byte[] input;
    private final Settings settings;
    private final ObjectNode out = JsonNodeFactory.instance.objectNode();
    private String refusedBy = null;
    private BatchLoop loop;
    private boolean analyzed = false;

    private Answer(byte[] input, Settings settings) {
        this.input = input;
        this.settings = settings;
    }

    public static ObjectNode to(byte[] input, ObjectNode cfg) {
        Answer a = new Answer(input, Settings.of(cfg));
        a.request();
        CompressionType found = a.analyze();
        a.validate(a.settings.sourceOr(found));
        if (!a.settings.withoutAppend())
            AppendStage.answer(a.out.putObject("append"), a.input, a.settings);
        a.conclude();
        return a.out;
    }

    private void refused(String stage, ObjectNode to, Throwable thrown) {
        Failure.put(to, thrown);
        if (refusedBy == null)
            refusedBy = stage;
    }

    private void request() {
        ObjectNode to = out.putObject("request");
        try {
            ProduceRequest.validateRecords(settings.produceVersion(), MemoryRecords.readableRecords(ByteBuffer.wrap(input)));
            to.put("ok", true);
        } catch (Throwable t) {
            refused("request", to, t);
        }
    }

    private CompressionType analyze() {
        ObjectNode to = out.putObject("analyze");
        loop = BatchLoop.of(settings);
        try {
            loop.run(MemoryRecords.readableRecords(ByteBuffer.wrap(input)));
            to.put("ok", true);
            to.put("valid_bytes", loop.validBytes);
            to.put("source", loop.source.name);
            analyzed = true;
            return loop.source;
        } catch (Throwable t) {
            refused("analyze", to, t);
            return null;
        }
    }

    private void validate(CompressionType source) {
        ObjectNode to = out.putObject("validate");
        if (source == null) {
            to.put("skipped", true);
            return;
        }
        ByteBuffer buffer = ByteBuffer.wrap(input.clone());
        if (analyzed && loop.validBytes > 0 && loop.validBytes < input.length)
            buffer.limit(loop.validBytes);  // UnifiedLog.trimInvalidBytes
        Meters meters = new Meters();
        Map<String, Long> before = Agent.counters(settings);
        try {
            Validation.Outcome outcome = Validation.run(MemoryRecords.readableRecords(buffer), source, settings, meters);
            accepted(to, outcome, buffer);
        } catch (Throwable t) {
            refused("validate", to, t);
        }
        if (!meters.counts.isEmpty())
            to.set("metrics", Json.MAPPER.valueToTree(meters.counts));
        claims(to, before);
    }

    /** What the agent has counted, where the case has a sender. */
    private void claims(ObjectNode to, Map<String, Long> before) {
        if (settings.sender() == null)
            return;
        ObjectNode counted = to.putObject("claims");
        Agent.counters(settings).forEach((name, count) -> {
            if (!count.equals(before.get(name)))
                counted.put(name, count - before.get(name));
        });
    }

    private void accepted(ObjectNode to, Validation.Outcome outcome, ByteBuffer buffer) {
        var result = outcome.result();
        MemoryRecords records = result.validatedRecords();
        to.put("ok", true);
        to.put("append_time", result.logAppendTimeMs());
        to.put("max_timestamp", result.maxTimestampMs());
        to.put("next_offset", outcome.nextOffset());
        to.put("size_maybe_changed", result.messageSizeMaybeChanged());
        to.put("in_place", records.buffer().array() == buffer.array());
        to.put("converted", result.converted());
        to.put("temp_bytes", result.temporaryBytes());
        byte[] output = Bytes.of(records.buffer());
        to.put("out_len", output.length);
        to.put("out_sha256", Digest.ofBytes(output));
        if (output.length <= WHOLE_OUTPUT_UP_TO)
            to.put("out_hex", HexFormat.of().formatHex(output));
        else
            to.put("out_head_hex", HexFormat.of().formatHex(output, 0, HEADER_BYTES));
        if (result.messageSizeMaybeChanged())
            describe(to, records);
    }

    private void describe(ObjectNode to, MemoryRecords records) {
        ArrayNode described = to.putArray("out_batches");
        int count = 0;
        for (MutableRecordBatch b : records.batches()) {
            if (count++ < BATCHES_DESCRIBED)
                described.addArray().add(b.magic()).add(b.baseOffset()).add(b.lastOffset()).add(b.compressionType().name)
                    .add(b.timestampType().name).add(b.maxTimestamp()).add(b.isValid());
            if (b.sizeInBytes() > settings.maxMessageBytes() && !settings.ignoresRecordSize() && refusedBy == null)
                refusedBy = "resize";
        }
        to.put("out_batch_count", count);
        to.put("out_logical_sha256", Digest.ofRecords(records));
    }

    private void conclude() {
        // appendAsLeader returns before LogValidator where no batch is there
        if ((refusedBy == null || "validate".equals(refusedBy) && analyzed) && loop.validBytes <= 0)
            refusedBy = "nothing_to_append";
        out.put("final", refusedBy == null ? "ok" : refusedBy);
        int code = 0;
        if ("resize".equals(refusedBy))
            code = Errors.MESSAGE_TOO_LARGE.code();
        else if (refusedBy != null && out.has(refusedBy))
            code = out.get(refusedBy).path("code").asInt();
        out.put("final_code", code);
    }
}
