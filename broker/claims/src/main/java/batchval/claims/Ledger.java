package batchval.claims;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Decides whose claims are believed, and remembers who lied. Many threads may use it at once.
 * <pre>
 * pads of eight draws    HMAC-SHA-512(secret, uint64_be(block) | utf8(sender)), block = 0, 1, ...
 * a draw                 the next pad, uint64 little-endian, the last one of a block first,
 *                        xor crc * 0x9E3779B97F4A7C15 mod 2^64
 * sampled                if the draw is below round(rate * 2^64); with a rate of 1 always
 * </pre>
 * A sender knows neither the secret nor its counter: it cannot tell which of its batches will be
 * verified, and a batch that is sent again meets another draw.
 */
public final class Ledger {
    public static final int FIRST_CHECKED = 100;
    public static final long DEMOTION_MS = 3_600_000;
    public static final int MOST_SENDERS = 10_000;

    public enum Decision { VERIFY, TRUST }

    /** What became of a batch with claims. */
    public enum Answer { TRUSTED, HONEST, LYING, UNJUDGED, UNBOUND }

    private static final String HMAC = "HmacSHA512";
    private static final long SPREAD = 0x9E3779B97F4A7C15L;
    private static final int PADS = 8;

    private final Mac keyed;
    private final int firstChecked;
    private final long demotionMs;
    private final int mostSenders;
    private final ConcurrentHashMap<String, Sender> senders = new ConcurrentHashMap<>();
    private final AtomicLong uses = new AtomicLong();

    /**
     * Create a ledger without senders.
     *
     * @param secret       16 to 64 bytes that nobody else knows; null: 32 random ones
     * @param firstChecked how many batches of a sender are all verified before a sample is
     * @param demotionMs   how long all batches of a sender are verified once it has lied
     * @param mostSenders  beyond them, the sender that was silent for longest is forgotten, unless
     *     it is demoted
     */
    public Ledger(byte[] secret, int firstChecked, long demotionMs, int mostSenders) {
        byte[] key = secret == null ? randomSecret() : secret.clone();
        if (key.length < 16 || key.length > 64)
            throw new IllegalArgumentException("invalid secret of " + key.length
                + " bytes: expected 16 to 64");
        if (firstChecked < 0 || demotionMs < 0)
            throw new IllegalArgumentException("invalid " + (firstChecked < 0
                ? "first.checked '" + firstChecked : "demotion.ms '" + demotionMs)
                + "': expected 0 or more");
        if (mostSenders < 1)
            throw new IllegalArgumentException("invalid number of senders '" + mostSenders
                + "': expected 1 or more");
        try {
            keyed = Mac.getInstance(HMAC);
            keyed.init(new SecretKeySpec(key, HMAC));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
        this.firstChecked = firstChecked;
        this.demotionMs = demotionMs;
        this.mostSenders = mostSenders;
    }

    private static byte[] randomSecret() {
        byte[] secret = new byte[32];
        new SecureRandom().nextBytes(secret);
        return secret;
    }

    /** Return what is known of a sender; a new one is remembered. */
    public Sender sender(String name, long nowMs) {
        Sender known = senders.get(name);
        if (known == null)
            known = remember(name, nowMs);
        known.lastUse = uses.incrementAndGet();
        return known;
    }

    private synchronized Sender remember(String name, long nowMs) {
        Sender known = senders.get(name);
        if (known != null)
            return known;
        Sender sender = new Sender(name);
        if (senders.size() >= mostSenders) {
            Sender silent = null;
            for (Sender other : senders.values())
                if (!other.isDemoted(nowMs) && (silent == null || other.lastUse < silent.lastUse))
                    silent = other;
            // all places are taken by demoted senders: a new one is new at its next batch again
            if (silent == null)
                return sender;
            senders.remove(silent.name);
        }
        senders.put(name, sender);
        return sender;
    }

    /** Return the number of senders that are known. */
    public int size() {
        return senders.size();
    }

    /** What the ledger knows of one sender. */
    public final class Sender {
        private final String name;
        private final byte[] nameBytes;
        private volatile long lastUse;
        private long checked = 0;
        private boolean demoted = false;
        private long demotedUntil = 0;
        private final long[] pads = new long[PADS];
        private int padsLeft = 0;
        private long blocks = 0;

        private Sender(String name) {
            this.name = name;
            this.nameBytes = name.getBytes(StandardCharsets.UTF_8);
        }

        public String name() {
            return name;
        }

        /** Return what to do with the claims of the batch with this crc; not for IGNORE. */
        public synchronized Decision decide(Policy policy, int crc, long nowMs) {
            if (demoted) {
                if (nowMs < demotedUntil)
                    return Decision.VERIFY;
                demoted = false;
                checked = 0;
            }
            if (policy.word() != Policy.Word.AUDIT)
                return policy.word() == Policy.Word.TRUST ? Decision.TRUST : Decision.VERIFY;
            // drawn for every batch, so that the first ones do not show how the draws will go
            if (padsLeft == 0)
                drawPads();
            long draw = pads[--padsLeft] ^ Integer.toUnsignedLong(crc) * SPREAD;
            if (policy.samplesAll() || Long.compareUnsigned(draw, policy.sampledBelow()) < 0)
                return Decision.VERIFY;
            return checked < firstChecked ? Decision.VERIFY : Decision.TRUST;
        }

        private void drawPads() {
            ByteBuffer drawn = ByteBuffer.wrap(pads(nameBytes, blocks++))
                .order(ByteOrder.LITTLE_ENDIAN);
            for (int i = 0; i < PADS; i++)
                pads[i] = drawn.getLong();
            padsLeft = PADS;
        }

        /**
         * Note what became of a batch. A lie demotes the sender.
         *
         * @return whether the sender is demoted by this answer, and was not before
         */
        public synchronized boolean note(Answer answer, long nowMs) {
            if (answer == Answer.HONEST)
                checked++;
            if (answer != Answer.LYING)
                return false;
            boolean first = !demoted;
            demoted = true;
            demotedUntil = nowMs + demotionMs;
            checked = 0;
            return first;
        }

        public synchronized boolean isDemoted(long nowMs) {
            return demoted && nowMs < demotedUntil;
        }
    }

    private synchronized byte[] pads(byte[] sender, long block) {
        keyed.update(ByteBuffer.allocate(Long.BYTES).putLong(0, block));
        keyed.update(sender);
        return keyed.doFinal();
    }
}
