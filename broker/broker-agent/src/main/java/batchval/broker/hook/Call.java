package batchval.broker.hook;

import batchval.claims.Claims;
import batchval.claims.Ledger;
import batchval.claims.RecordWalk;

import java.io.InputStream;

/**
 * One batch with claims in LogValidator: settled by its claims, or watched while Kafka reads its
 * records. No method throws.
 */
public final class Call {
    private final Hooks hooks;
    private final Carried carried;
    private final Ledger.Sender sender;
    private final String topic;
    private final Claims claims;
    private final int headerCount;
    private final long headerMaxTimestamp;
    private final long now;
    /** Null: the claims settle the batch. */
    private final RecordWalk walk;
    private boolean reached = false;
    private boolean opened = false;
    private boolean failed = false;

    Call(Hooks hooks, Carried carried, Ledger.Sender sender, String topic, Claims claims,
         int headerCount, long headerMaxTimestamp, RecordWalk walk, long now) {
        this.hooks = hooks;
        this.carried = carried;
        this.sender = sender;
        this.topic = topic;
        this.claims = claims;
        this.headerCount = headerCount;
        this.headerMaxTimestamp = headerMaxTimestamp;
        this.now = now;
        this.walk = walk;
        if (walk != null)
            carried.call = this;
    }

    // ---- what a batch that is settled gets -----------------------------------------------------

    /** Return whether the claims settle the batch, once validateBatch has not refused it. */
    public boolean isSettled() {
        return walk == null;
    }

    public long now() {
        return now;
    }

    public int count() {
        return headerCount;
    }

    public long maxTimestamp() {
        return headerMaxTimestamp;
    }

    /** Return LogValidator's uncompressedSizeInBytes; 0 where the claims do not state it. */
    public long uncompressedBytes() {
        return claims.uncompressedBytes();
    }

    /** Note how a settled batch ended; null: it was accepted. */
    public void accepted(Throwable refusal) {
        note(refusal == null ? Ledger.Answer.TRUSTED : Ledger.Answer.UNJUDGED, null);
    }

    // ---- a batch whose records Kafka reads -----------------------------------------------------

    /** Note that Kafka goes on to the records: validateBatch has not refused the batch. */
    void reached() {
        reached = true;
    }

    /** Return the stream that Kafka reads instead: the walk sees the same bytes. */
    InputStream watch(InputStream records) {
        if (opened)
            failed = true;
        opened = true;
        return new WatchedStream(records, this);
    }

    RecordWalk walk() {
        return walk;
    }

    /** Stop to watch: our own code has failed. */
    void failed(Throwable e) {
        failed = true;
        hooks.failed(e);
    }

    boolean hasFailed() {
        return failed;
    }

    /** Note what the records show. Null: Kafka has accepted the batch, else its refusal. */
    public void ended(Throwable refusal) {
        carried.call = null;
        if (failed)
            return;
        try {
            judge(refusal);
        } catch (Throwable e) {
            hooks.failed(e);
        }
    }

    private void judge(Throwable refusal) {
        if (!reached) {
            note(Ledger.Answer.UNJUDGED, null);
        } else if (walk.position() > hooks.maxDecompressedBytes()) {
            note(Ledger.Answer.LYING, "the batch decompresses to more than "
                + hooks.maxDecompressedBytes() + " bytes");
        } else if (walk.isWhole() || refusal == null) {
            String lie = walk.lie(claims, headerCount, headerMaxTimestamp);
            note(lie == null ? Ledger.Answer.HONEST : Ledger.Answer.LYING, lie);
        } else if (isTheJvms(refusal) || isAboveTheTopicsLimit()) {
            note(Ledger.Answer.UNJUDGED, null);
        } else {
            note(Ledger.Answer.LYING, "its records cannot be read: " + refusal.getMessage());
        }
    }

    /** Return whether a failure says nothing of the batch; a damaged snappy block is an Error. */
    private static boolean isTheJvms(Throwable refusal) {
        return refusal instanceof VirtualMachineError || refusal instanceof LinkageError;
    }

    /** Return whether a record was too large for the topic, and was not claimed to be smaller. */
    private boolean isAboveTheTopicsLimit() {
        return walk.hasOneAboveLargest()
            && (claims.version() == 1 || claims.maxRecordBytes() > walk.largestRecord());
    }

    private void note(Ledger.Answer answer, String lie) {
        hooks.note(sender, answer, topic, lie, now);
    }
}
