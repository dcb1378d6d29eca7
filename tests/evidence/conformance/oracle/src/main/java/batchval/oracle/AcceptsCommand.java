package batchval.oracle;

import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Answers many batches with error codes alone, from standard input to standard output. Integers are
 * big-endian.
 *
 *   input   settings:i32 (size:i32 cfg, as JSON)*, then cases to the end:
 *           setting:i16 size:i32 batch
 *   output  a case: request:i16 analyze:i16 source:i8 validate:i16 resize:i16
 *
 * 0 is acceptance, SKIPPED a stage that could not be asked, OUT_OF_MEMORY a stage that needed more
 * than Java's heap. The stages are those of {@link Answer}; resize is rule 40. Answers are flushed
 * when no further case is waiting.
 */
final class AcceptsCommand {
    static final short SKIPPED = 10_000;
    static final short OUT_OF_MEMORY = 10_001;
    private static final int BUFFER = 1 << 16;

    private final Settings settings;
    private final byte[] input;
    private final BatchLoop loop;
    private short resize = 0;

    private AcceptsCommand(byte[] input, Settings settings) {
        this.input = input;
        this.settings = settings;
        this.loop = BatchLoop.of(settings);
    }

    static void run(OutputStream stdout) throws IOException {
        BufferedInputStream stdin = new BufferedInputStream(System.in, BUFFER);
        DataInputStream in = new DataInputStream(stdin);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(stdout, BUFFER));
        List<Settings> settings = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--)
            settings.add(Settings.of(Json.MAPPER.readTree(in.readNBytes(in.readInt()))));
        while (true) {
            if (stdin.available() == 0)
                out.flush();
            int high = in.read();
            if (high < 0)
                break;
            Settings s = settings.get(high << 8 | in.readUnsignedByte());
            new AcceptsCommand(in.readNBytes(in.readInt()), s).answer(out);
        }
        out.flush();
    }

    private void answer(DataOutputStream out) throws IOException {
        out.writeShort(request());
        short analyzed = analyze();
        out.writeShort(analyzed);
        CompressionType source = settings.sourceOr(analyzed == 0 ? loop.source : null);
        out.writeByte(source == null ? -1 : source.id);
        out.writeShort(source == null ? SKIPPED : validate(source, analyzed == 0));
        out.writeShort(resize);
    }

    private short request() {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(input));
            ProduceRequest.validateRecords(settings.produceVersion(), records);
            return 0;
        } catch (Throwable t) {
            return code(t);
        }
    }

    private short analyze() {
        try {
            loop.run(MemoryRecords.readableRecords(ByteBuffer.wrap(input)));
            return 0;
        } catch (Throwable t) {
            return code(t);
        }
    }

    private short validate(CompressionType source, boolean analyzed) {
        ByteBuffer buffer = ByteBuffer.wrap(input.clone());
        if (analyzed && loop.validBytes > 0 && loop.validBytes < input.length)
            buffer.limit(loop.validBytes);  // UnifiedLog.trimInvalidBytes
        try {
            MemoryRecords records = MemoryRecords.readableRecords(buffer);
            var result = Validation.run(records, source, settings, new Meters()).result();
            if (result.messageSizeMaybeChanged() && !settings.ignoresRecordSize())
                for (MutableRecordBatch b : result.validatedRecords().batches())
                    if (b.sizeInBytes() > settings.maxMessageBytes())
                        resize = Errors.MESSAGE_TOO_LARGE.code();
            return 0;
        } catch (Throwable t) {
            return code(t);
        }
    }

    private static short code(Throwable thrown) {
        if (thrown instanceof Reflect.Missing missing)
            throw missing;  // no answer of Kafka
        if (thrown instanceof OutOfMemoryError)
            return OUT_OF_MEMORY;
        if (thrown instanceof Error)
            return Errors.UNKNOWN_SERVER_ERROR.code();
        LogClasses.Refusal refused = LogClasses.Refusal.of(thrown);
        return Errors.forException(refused == null ? thrown : refused.answer()).code();
    }
}
