package batchval.oracle.golden;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.function.Consumer;

/**
 * The extras (S1 and up): what strict mode refuses and Kafka accepts, or answers with -1. A third
 * line shows the extra set to "report": what Kafka accepts is then accepted and listed; what Kafka
 * answers with -1 stays refused. S8 cannot be set so.
 */
final class Extras {
    private static final int INVALID_RECORD = 87;

    static void write(Golden g) {
        accepted(g, "S1", "unused-attribute-bits", INVALID_RECORD, Samples.batch(), Samples.batch(b -> b.attributes = 0x80));
        accepted(g, "S2", "bytes-behind-batch", INVALID_RECORD, Samples.batch(), Bytes.cat(Samples.batch(), new byte[1]));
        record(g, "S3", "offset-deltas-not-sequential", CompressionType.NONE, x -> x.offsetDelta = 0);
        record(g, "S4", "record-length-unlike-record", Samples.LZ4, x -> x.lengthError = 1);
        outsideFormat(g);
        failing(g, "S6", "codec-not-defined", 76, Samples.batch(b -> b.attributes = 7));
        accepted(g, "S7", "compressed-stream-damaged", INVALID_RECORD, Samples.batch(Samples.LZ4, b -> { }),
            Samples.batch(Samples.LZ4, b -> b.body = Bytes.cat(b.body, new byte[1])));
        tooLarge(g);
        brokerWouldFail(g);
        accepted(g, "S10", "timestamp-below-minus-one", 32, ValidatorRules.at(-1), ValidatorRules.at(-2));
    }

    private static void accepted(Golden g, String id, String slug, int code, byte[] good, byte[] odd) {
        g.rule(id, slug, "append",
            new Line("obeys", good).strictAccepts(),
            new Line("breaks", odd).strictRefuses(id, code),
            new Line("reported", odd).reporting(id).strictAccepts(id));
    }

    private static void record(Golden g, String id, String slug, CompressionType codec, Consumer<V2Record> edit) {
        accepted(g, id, slug, INVALID_RECORD, Samples.withRecord(codec, x -> { }), Samples.withRecord(codec, edit));
    }

    /** Three things in one extra. */
    private static void outsideFormat(Golden g) {
        byte[][] headers = {Samples.bytes("h"), Samples.bytes("v")};
        byte[][] notUtf8 = {{(byte) 0xff}, Samples.bytes("v")};
        byte[] length = Samples.withRecord(CompressionType.NONE, x -> {
            x.key = null;
            x.keyLength = -2;
        });
        g.rule("S5", "record-fields-outside-format", "append",
            new Line("obeys", Samples.withRecord(CompressionType.NONE, x -> x.key = null)).strictAccepts(),
            new Line("breaks", length).strictRefuses("S5", INVALID_RECORD),
            new Line("breaks-by-attributes", Samples.withRecord(CompressionType.NONE, x -> x.attributes = 1)).strictRefuses("S5", INVALID_RECORD),
            new Line("obeys-with-header", Samples.withRecord(CompressionType.NONE, x -> x.headers = headers)).strictAccepts(),
            new Line("breaks-by-header-key", Samples.withRecord(CompressionType.NONE, x -> x.headers = notUtf8)).strictRefuses("S5", INVALID_RECORD),
            new Line("reported", length).reporting("S5").strictAccepts("S5"));
    }

    /** Kafka's -1 is refused under every setting. */
    private static void failing(Golden g, String id, String slug, int code, byte[] odd) {
        g.rule(id, slug, "append",
            new Line("obeys", Samples.batch()).strictAccepts(),
            new Line("breaks", odd).strictRefuses(id, code),
            new Line("breaks-though-only-reported", odd).reporting(id).strictRefuses(id, code));
    }

    private static void tooLarge(Golden g) {
        byte[] batch = Samples.batch(Samples.LZ4, b -> { });
        int plain = Samples.body().length;
        g.rule("S8", "decompressed-too-large", "append",
            new Line("obeys", batch).set("max_decompressed_bytes", plain).strictAccepts(),
            new Line("breaks", batch).set("max_decompressed_bytes", plain - 1).strictRefuses("S8", INVALID_RECORD));
    }

    private static void brokerWouldFail(Golden g) {
        Consumer<V2Batch> transactional = b -> b.attributes = 0x10;
        byte[] odd = Samples.batch(transactional);
        g.rule("S9", "broker-would-fail", "append",
            new Line("obeys", Samples.batch(transactional.andThen(b -> b.producer(9, 0, 0)))).set("target", "lz4").strictAccepts(),
            new Line("breaks", odd).set("target", "lz4").strictRefuses("S9", INVALID_RECORD),
            new Line("breaks-though-only-reported", odd).set("target", "lz4").reporting("S9").strictRefuses("S9", INVALID_RECORD));
    }

    private Extras() { }
}
