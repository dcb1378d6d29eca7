package batchval.oracle.golden;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.LegacyMessage;
import batchval.oracle.bytes.V2Record;

import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.util.function.Consumer;

/** Rules 18 to 40: LogValidator, and the size of what it rebuilds. */
final class ValidatorRules {
    private static final int INVALID_RECORD = 87;
    private static final int INVALID_TIMESTAMP = 32;
    private static final int UNSUPPORTED_FOR_MESSAGE_FORMAT = 43;
    private static final int MESSAGE_TOO_LARGE = 10;

    static void write(Golden g) {
        batches(g);
        headers(g);
        downConversion(g);
        legacy(g);
        records(g);
        rebuild(g);
    }

    private static Line obeys(byte[] batch) {
        return new Line("obeys", batch);
    }

    private static Line breaks(byte[] batch) {
        return new Line("breaks", batch);
    }

    private static void batches(Golden g) {
        byte[] good = Samples.batch();
        // a whole produce request meets rules 5, 6 and 8 first: these three are LogValidator's own
        // words for it
        g.rule("18", "validator-without-batch", "validate",
            obeys(good).strictAccepts(),
            breaks(new byte[0]).strictRefuses("5", INVALID_RECORD));
        g.rule("19", "validator-more-than-one-batch", "validate",
            obeys(good).strictAccepts(),
            breaks(Bytes.cat(good, good)).set("origin", "COORDINATOR")
                .strictRefuses("19", INVALID_RECORD));
        g.rule("21", "batch-magic-differs", "validate",
            obeys(Bytes.cat(Samples.message(1, 0).build(), Samples.message(1, 1).build())).strictRefuses("6", INVALID_RECORD),
            breaks(Bytes.cat(Samples.message(1, 0).build(), Samples.message(0, 1).build())).strictRefuses("6", INVALID_RECORD));
    }

    private static void headers(Golden g) {
        header(g, "22", "offset-range-empty", Samples.batch(b -> b.lastOffsetDelta = -1));
        header(g, "23", "records-count-not-positive", Samples.batch(b -> b.count = 0));
        header(g, "24", "records-count-unlike-offsets", Samples.batch(b -> b.lastOffsetDelta = Samples.RECORDS));
        header(g, "25", "control-batch-by-client", Samples.batch(b -> b.attributes = 0x20));
        g.rule("26", "base-sequence-negative", "validate",
            obeys(Samples.batch(b -> b.producer(9, 0, 0))).strictAccepts(),
            breaks(Samples.batch(b -> b.producer(9, 0, -1))).strictRefuses("26", INVALID_RECORD));
    }

    private static void header(Golden g, String id, String slug, byte[] broken) {
        g.rule(id, slug, "validate", obeys(Samples.batch()).strictAccepts(), breaks(broken).strictRefuses(id, INVALID_RECORD));
    }

    private static void downConversion(Golden g) {
        // compressed: of an uncompressed batch the builder would fail first (rule 39)
        byte[] plain = Samples.batch(Samples.LZ4, b -> { });
        g.rule("27", "transaction-before-magic-2", "validate",
            obeys(plain).set("to_magic", 1).strictAccepts(),
            breaks(Samples.batch(Samples.LZ4, b -> b.attributes |= 0x10)).set("to_magic", 1).strictRefuses("27", UNSUPPORTED_FOR_MESSAGE_FORMAT));
        g.rule("28", "producer-id-before-magic-2", "validate",
            obeys(plain).set("to_magic", 1).strictAccepts(),
            breaks(Samples.batch(Samples.LZ4, b -> b.producer(9, 0, 0))).set("to_magic", 1).strictRefuses("28", UNSUPPORTED_FOR_MESSAGE_FORMAT));
    }

    private static void legacy(Golden g) {
        byte[] first = Samples.message(1, 0).build();
        inner(g, "30", "wrapper-malformed", Samples.wrapper(null));
        inner(g, "31", "inner-size-too-small", second(m -> m.size(LegacyMessage.OVERHEAD_V0 - 1)));
        // LogValidator's own question (validateRecordCompression) is never reached in 4.4.0: the
        // iterator refuses before, so no record_errors
        inner(g, "32", "inner-codec-set", second(m -> m.attributes(CompressionType.GZIP.id)));
        inner(g, "33", "record-magic-differs", Samples.wrapper(Bytes.cat(first, Samples.message(0, 1).build())));
        inner(g, "34", "inner-crc-mismatch", second(LegacyMessage::wrongCrc));
    }

    private static byte[] second(Consumer<LegacyMessage> edit) {
        LegacyMessage m = Samples.message(1, 1);
        edit.accept(m);
        return Samples.wrapper(Bytes.cat(Samples.message(1, 0).build(), m.build()));
    }

    /** Magic 1 reaches LogValidator alone: a produce request is refused by rule 6. */
    private static void inner(Golden g, String id, String slug, byte[] broken) {
        byte[] good = second(m -> { });
        g.rule(id, slug, "validate",
            obeys(good).set("to_magic", 1).strictRefuses("6", INVALID_RECORD),
            breaks(broken).set("to_magic", 1).strictRefuses("6", INVALID_RECORD));
    }

    private static void records(Golden g) {
        byte[] good = Samples.batch();
        byte[] noKey = Samples.withRecord(CompressionType.NONE, x -> x.key = null);
        g.rule("29", "record-malformed", "validate",
            obeys(good).strictAccepts(),
            breaks(Samples.withRecord(CompressionType.NONE, x -> x.lengthError = 1)).strictRefuses("29", INVALID_RECORD));
        g.rule("35", "key-missing", "validate",
            obeys(good).set("compact", true).strictAccepts(),
            breaks(noKey).set("compact", true).strictRefuses("35", INVALID_RECORD));
        g.rule("36", "timestamp-out-of-range", "validate",
            obeys(at(Samples.NOW - 1000)).set("before_max_ms", 1000).strictAccepts(),
            breaks(at(Samples.NOW - 1001)).set("before_max_ms", 1000).strictRefuses("36", INVALID_TIMESTAMP));
        g.rule("37", "timestamp-type-by-producer", "validate",
            obeys(good).set("ts_type", "LogAppendTime").strictAccepts(),
            breaks(Samples.batch(b -> b.attributes = 8)).set("ts_type", "LogAppendTime").strictRefuses("37", INVALID_TIMESTAMP));
        g.rule("38", "record-errors", "validate",
            obeys(good).set("compact", true).set("after_max_ms", 1000).strictAccepts(),
            breaks(twoReasons()).set("compact", true).set("after_max_ms", 1000).strictRefuses("38", INVALID_TIMESTAMP));
    }

    /** Both records at one time. */
    static byte[] at(long timestamp) {
        return Samples.around(CompressionType.NONE, Samples.body(x -> x.timestampDelta = 0)).timestamps(timestamp, timestamp).build();
    }

    /** The first record has no key, the second is 1,001 ms ahead. */
    private static byte[] twoReasons() {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        V2Record first = Samples.record(0);
        V2Record second = Samples.record(1);
        first.key = null;
        second.timestampDelta = 1001;
        first.write(o);
        second.write(o);
        return Samples.around(CompressionType.NONE, o.toByteArray()).timestamps(Samples.NOW, Samples.NOW + 1001).build();
    }

    private static void rebuild(Golden g) {
        g.rule("39", "rebuild-impossible", "validate",
            obeys(Samples.batch(b -> b.producer(9, 0, 0))).set("target", "lz4").strictAccepts(),
            breaks(Samples.batch(b -> b.producer(9, -1, 0))).set("target", "lz4").strictRefuses("S9", INVALID_RECORD));
        byte[] grows = Samples.withRecord(Samples.LZ4, x -> x.value = Samples.bytes("0".repeat(500)));
        int rebuilt = Samples.withRecord(CompressionType.NONE, x -> x.value = Samples.bytes("0".repeat(500))).length;
        g.rule("40", "rebuilt-batch-too-large", "append",
            obeys(grows).set("target", "uncompressed").set("max_message_bytes", rebuilt).strictAccepts(),
            breaks(grows).set("target", "uncompressed").set("max_message_bytes", rebuilt - 1).strictRefuses("40", MESSAGE_TOO_LARGE));
    }

    private ValidatorRules() { }
}
