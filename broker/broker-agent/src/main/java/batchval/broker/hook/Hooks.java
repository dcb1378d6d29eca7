package batchval.broker.hook;

import batchval.broker.Counters;
import batchval.broker.Log;
import batchval.broker.Options;
import batchval.claims.Claims;
import batchval.claims.Ledger;
import batchval.claims.Policy;
import batchval.claims.Reading;
import batchval.claims.RecordWalk;
import batchval.claims.StatedSize;
import batchval.claims.Tag;

import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestAndSize;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

import java.io.InputStream;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What the patched classes of the broker call. Nothing here throws: where our own code fails, the
 * failure is counted and Kafka's path goes on.
 */
public final class Hooks {
    // where the fields of a record batch of magic 2 stand
    private static final int LENGTH = 8;
    private static final int LOG_OVERHEAD = 12;
    private static final int MAGIC = 16;
    private static final int CRC = 17;
    private static final int ATTRIBUTES = 21;
    private static final int BASE_TIMESTAMP = 27;
    private static final int MAX_TIMESTAMP = 35;
    private static final int RECORDS_COUNT = 57;
    private static final int RECORDS = 61;
    private static final int CODEC_MASK = 7;
    private static final int LOG_APPEND_TIME = 8;
    /** Codec and transactional; with any other attribute, Kafka reads the records. */
    private static final int PLAIN_ATTRIBUTES = 0x17;
    private static final List<String> CODECS = List.of("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD");

    private static volatile Hooks installed = null;

    private final Options options;
    private final Ledger ledger;
    private final Counters counters;
    private final Log log;
    private final Set<String> anonymousLogged = ConcurrentHashMap.newKeySet();
    private volatile boolean failureLogged = false;

    private Hooks(Options options, Ledger ledger, Counters counters, Log log) {
        this.options = options;
        this.ledger = ledger;
        this.counters = counters;
        this.log = log;
    }

    public static void install(Options options, Counters counters, Log log) {
        installed =
            options.ignoresAll() ? null : new Hooks(options, options.ledger(), counters, log);
    }

    /** Have patched classes behave as stock. */
    public static void uninstall() {
        installed = null;
    }

    // ---- called by patched classes -------------------------------------------------------------

    /** Attach tag and principal to the records of a Produce request that was just parsed. */
    public static void parsed(Object requestAndSize, Object context) {
        Hooks hooks = installed;
        if (hooks == null)
            return;
        try {
            if (((RequestAndSize) requestAndSize).request instanceof ProduceRequest produce)
                attach(produce.data(), (RequestContext) context);
        } catch (Throwable e) {
            hooks.failed(e);
        }
    }

    private static void attach(ProduceRequestData data, RequestContext context) {
        KafkaPrincipal principal = context.principal;
        String name = principal.toString();
        boolean anonymous = isAnonymous(principal);
        String listener = context.listenerName.value();
        for (ProduceRequestData.TopicProduceData topic : data.topicData())
            for (ProduceRequestData.PartitionProduceData partition : topic.partitionData())
                if ((Object) partition instanceof HasRecords with
                    && with.batchval$records() instanceof CarriesClaims records)
                    records.batchval$carry(new Carried(
                        tag(partition.unknownTaggedFields()), name, anonymous, listener));
    }

    /**
     * Return whether the client is not authenticated. By name: a KafkaPrincipalBuilder may return a
     * class of its own, which is never equal to KafkaPrincipal.ANONYMOUS.
     */
    static boolean isAnonymous(KafkaPrincipal principal) {
        return KafkaPrincipal.ANONYMOUS.getName().equals(principal.getName());
    }

    private static byte[] tag(List<RawTaggedField> fields) {
        for (RawTaggedField field : fields)
            if (field.tag() == Tag.NUMBER)
                return field.data();
        return null;
    }

    /** Attach a tag and a sender to records, as {@link #parsed} does; for tests and benchmarks. */
    public static void carry(Object records, byte[] tag, String principal, boolean anonymous,
                             String listener) {
        if (records instanceof CarriesClaims carrying)
            carrying.batchval$carry(new Carried(tag, principal, anonymous, listener));
    }

    /**
     * Decide about a batch in LogValidator. Null: Kafka validates it as without the agent. Else the
     * caller does what the call says.
     *
     * @param refusedCodec Kafka 3.9 may refuse zstd because of inter.broker.protocol.version
     */
    public static Call begin(Object records, ByteBuffer buffer, String topic, String origin,
                             String source, String target, int toMagic, String timestampType,
                             boolean compacted, long beforeMaxMs, long afterMaxMs,
                             int largestRecord, boolean refusedCodec, long now) {
        Hooks hooks = installed;
        if (hooks == null || !(records instanceof CarriesClaims carrying))
            return null;
        try {
            return carrying.batchval$carried() instanceof Carried carried && origin.equals("CLIENT")
                ? hooks.decide(carried, buffer, topic, new Setting(source, target, toMagic,
                    timestampType, compacted, beforeMaxMs, afterMaxMs, largestRecord, refusedCodec),
                    now)
                : null;
        } catch (Throwable e) {
            hooks.failed(e);
            return null;
        }
    }

    /** Have the batch's records watched, where a validation wants to watch those of the buffer. */
    public static void watch(Object batch, Object records) {
        if (installed != null && records instanceof CarriesClaims carrying
            && carrying.batchval$carried() instanceof Carried carried && carried.call != null
            && batch instanceof Watched watched) {
            watched.batchval$watch(carried.call);
            carried.call.reached();
        }
    }

    /** Return the stream that Kafka reads a watched batch's records from. */
    public static InputStream stream(InputStream records, Object call) {
        return call instanceof Call watching ? watching.watch(records) : records;
    }

    // ---- decisions -----------------------------------------------------------------------------

    /** What topic and broker ask of the batch. */
    private record Setting(String source, String target, int toMagic, String timestampType,
                           boolean compacted, long beforeMaxMs, long afterMaxMs,
                           int largestRecord, boolean refusedCodec) { }

    private Call decide(Carried carried, ByteBuffer b, String topic, Setting setting, long now) {
        int at = b.position();
        // one whole batch of magic 2, compressed with the codec that LogValidator was called with
        if (b.remaining() < RECORDS || b.get(at + MAGIC) != 2
            || (long) b.getInt(at + LENGTH) + LOG_OVERHEAD != b.remaining())
            return null;
        int codec = b.get(at + ATTRIBUTES + 1) & CODEC_MASK;
        if (codec == 0 || codec >= CODECS.size() || !CODECS.get(codec).equals(setting.source))
            return null;
        if (options.measuresHeader(topic))
            return believeHeader(carried, b, topic, setting, now);
        Policy policy = policy(carried, topic);
        if (policy.word() == Policy.Word.IGNORE)
            return null;
        Reading reading = Reading.of(b, carried.tag);
        if (reading.kind() == Reading.Kind.NONE) {
            counters.noClaims.increment();
            return null;
        }
        Ledger.Sender sender =
            ledger.sender(carried.anonymous ? carried.listener : carried.principal, now);
        // claims that cannot be used take their turn in the sample too, as in the library
        Ledger.Decision decision = sender.decide(policy, b.getInt(at + CRC), now);
        if (reading.kind() == Reading.Kind.UNBOUND) {
            counters.unbound.increment();
            return null;
        }
        Claims claims = reading.claims();
        boolean settled = false;
        if (decision == Ledger.Decision.VERIFY)
            counters.verified.increment();
        else if (settles(claims, b, setting, now))
            settled = true;
        else
            counters.notSettled.increment();
        long max = b.getLong(at + MAX_TIMESTAMP);
        RecordWalk walk = settled ? null : new RecordWalk(b.getLong(at + BASE_TIMESTAMP),
            (b.get(at + ATTRIBUTES + 1) & LOG_APPEND_TIME) == 0 ? null : max,
            setting.largestRecord, claims.schemaIds() != null);
        return new Call(this, carried, sender, topic, claims, b.getInt(at + RECORDS_COUNT), max,
            walk, now);
    }

    /** Settle a batch by what its header states, which is neither sizes nor missing keys. */
    private Call believeHeader(Carried carried, ByteBuffer b, String topic, Setting setting,
                               long now) {
        int at = b.position();
        int count = b.getInt(at + RECORDS_COUNT);
        Claims stated = Claims.version1(b.getLong(at + BASE_TIMESTAMP), count,
            Claims.SOME_KEYS_NULL);
        Ledger.Sender sender = ledger.sender(carried.principal, now);
        return settles(stated, b, setting, now)
            ? new Call(this, carried, sender, topic, stated, count, b.getLong(at + MAX_TIMESTAMP),
                null, now)
            : null;
    }

    private Policy policy(Carried carried, String topic) {
        Options.Rule rule = options.rule(topic, carried.principal, carried.listener);
        Policy policy = rule.policy();
        boolean believes = policy.word() == Policy.Word.AUDIT
            || policy.word() == Policy.Word.TRUST;
        if (!carried.anonymous || !believes || rule.namesListener())
            return policy;
        counters.anonymousIgnored.increment();
        if (anonymousLogged.add(carried.listener))
            log.warn("claims of " + carried.principal + " on listener " + carried.listener
                + " are ignored: " + rule.name() + " is " + policy + " and does not name the"
                + " listener; add listener=" + carried.listener + " to a rule to believe them");
        return Policy.IGNORE;
    }

    /** Return whether claims answer all that LogValidator asks of the records, and answer yes. */
    private boolean settles(Claims claims, ByteBuffer b, Setting s, long now) {
        int at = b.position();
        long max = b.getLong(at + MAX_TIMESTAMP);
        long min = claims.batchMinTimestamp();
        if (s.toMagic != 2 || !s.source.equals(s.target) || s.refusedCodec
            || !s.timestampType.equals("CREATE_TIME") || b.getLong(at) != 0
            || (b.getShort(at + ATTRIBUTES) & ~PLAIN_ATTRIBUTES) != 0)
            return false;
        if (claims.recordsNumber() != b.getInt(at + RECORDS_COUNT) || min < 0 || min > max
            || now - min > s.beforeMaxMs || max - now > s.afterMaxMs)
            return false;
        boolean keysSettle = s.compacted ? claims.nullKeys() == Claims.NO_KEY_NULL
            : claims.nullKeys() >= Claims.SOME_KEYS_NULL && claims.nullKeys() <= Claims.NO_KEY_NULL;
        return keysSettle && sizesSettle(claims, s.largestRecord)
            && Long.compareUnsigned(StatedSize.of(b), options.maxDecompressedBytes()) <= 0;
    }

    /** Return whether the sizes are claimed, and are within the limits of a batch and a record. */
    private boolean sizesSettle(Claims claims, int largestRecord) {
        if (claims.version() == 1)
            return largestRecord >= options.maxDecompressedBytes();
        long records = (long) claims.uncompressedBytes() - RECORDS;
        return records >= 0 && records <= options.maxDecompressedBytes()
            && claims.maxRecordBytes() >= 0 && claims.maxRecordBytes() <= largestRecord
            && claims.maxRecordBytes() <= records;
    }

    // ---- what came of it -----------------------------------------------------------------------

    long maxDecompressedBytes() {
        return options.maxDecompressedBytes();
    }

    void note(Ledger.Sender sender, Ledger.Answer answer, String topic, String lie, long now) {
        try {
            counters.of(answer).increment();
            if (sender.note(answer, now)) {
                counters.demotions.increment();
                log.warn("claims of " + sender.name() + " lie (topic " + topic + "): " + lie
                    + "; all its batches with claims are verified until "
                    + Instant.ofEpochMilli(now + options.demotionMs()));
            }
        } catch (Throwable e) {
            failed(e);
        }
    }

    void failed(Throwable e) {
        counters.errors.increment();
        if (!failureLogged) {
            failureLogged = true;
            log.warn("the agent has failed, and Kafka validates the batch as without it; further"
                + " failures are counted as Errors: " + e);
        }
    }
}
