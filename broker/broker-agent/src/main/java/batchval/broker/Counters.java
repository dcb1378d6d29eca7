package batchval.broker;

import batchval.claims.Ledger;

import java.util.concurrent.atomic.LongAdder;

/** What became of batches; {@link ClaimsMBean} describes each number. */
public final class Counters implements ClaimsMBean {
    public final LongAdder trusted = new LongAdder();
    public final LongAdder verified = new LongAdder();
    public final LongAdder honest = new LongAdder();
    public final LongAdder lying = new LongAdder();
    public final LongAdder unjudged = new LongAdder();
    public final LongAdder unbound = new LongAdder();
    public final LongAdder noClaims = new LongAdder();
    public final LongAdder notSettled = new LongAdder();
    public final LongAdder demotions = new LongAdder();
    public final LongAdder anonymousIgnored = new LongAdder();
    public final LongAdder errors = new LongAdder();
    private static final String INACTIVE = "inactive: ";

    private volatile String status = INACTIVE + "starting";

    public LongAdder of(Ledger.Answer answer) {
        return switch (answer) {
            case TRUSTED -> trusted;
            case HONEST -> honest;
            case LYING -> lying;
            case UNJUDGED -> unjudged;
            case UNBOUND -> unbound;
        };
    }

    void active(String text) {
        status = "active: " + text;
    }

    void inactive(String reason) {
        status = INACTIVE + reason;
    }

    @Override
    public long getTrusted() {
        return trusted.sum();
    }

    @Override
    public long getVerified() {
        return verified.sum();
    }

    @Override
    public long getHonest() {
        return honest.sum();
    }

    @Override
    public long getLying() {
        return lying.sum();
    }

    @Override
    public long getUnjudged() {
        return unjudged.sum();
    }

    @Override
    public long getUnbound() {
        return unbound.sum();
    }

    @Override
    public long getNoClaims() {
        return noClaims.sum();
    }

    @Override
    public long getNotSettled() {
        return notSettled.sum();
    }

    @Override
    public long getDemotions() {
        return demotions.sum();
    }

    @Override
    public long getAnonymousIgnored() {
        return anonymousIgnored.sum();
    }

    @Override
    public long getErrors() {
        return errors.sum();
    }

    @Override
    public long getInactive() {
        return status.startsWith(INACTIVE) ? 1 : 0;
    }

    @Override
    public String getStatus() {
        return status;
    }
}
