package batchval.claims;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.Locale;

/**
 * What to make of the claims that a sender attaches to its batches.
 *
 * @param word IGNORE: claims are not read. VERIFY: every batch is decompressed and its claims are
 *     compared. AUDIT: they are believed but for a sample, and a sender's first batches. TRUST:
 *     they are believed
 * @param rate the share of a sender's batches that AUDIT verifies; 0 for the others
 * @param sampledBelow round(rate * 2^64), unsigned: a draw below it falls on the batch
 */
public record Policy(Word word, double rate, long sampledBelow) {
    public enum Word { IGNORE, VERIFY, AUDIT, TRUST }

    private static final BigDecimal DRAWS = new BigDecimal(BigInteger.ONE.shiftLeft(64));

    public static final Policy IGNORE = new Policy(Word.IGNORE, 0);

    public Policy(Word word, double rate) {
        this(word, rate, sampledBelow(rate));
    }

    /**
     * Return the policy of {@code ignore}, {@code verify}, {@code audit:0.01} or {@code trust}.
     *
     * @throws IllegalArgumentException the text is none of them
     */
    public static Policy parse(String text) {
        switch (text) {
            case "ignore":
                return IGNORE;
            case "verify":
                return new Policy(Word.VERIFY, 0);
            case "trust":
                return new Policy(Word.TRUST, 0);
            default:
                if (!text.startsWith("audit:"))
                    throw new IllegalArgumentException("invalid policy '" + text
                        + "': expected ignore, verify, audit:RATE or trust");
                return new Policy(Word.AUDIT, rate(text));
        }
    }

    private static double rate(String text) {
        double rate;
        try {
            rate = Double.parseDouble(text.substring("audit:".length()));
        } catch (NumberFormatException e) {
            rate = Double.NaN;
        }
        if (!(rate > 0 && rate <= 1))
            throw new IllegalArgumentException("invalid policy '" + text
                + "': expected a rate above 0 and at most 1, for example audit:0.01");
        return rate;
    }

    /** Return whether every draw falls on the batch. */
    boolean samplesAll() {
        return rate >= 1;
    }

    /** Return round(rate * 2^64) as an unsigned long; 0 for a rate of 1, where all are sampled. */
    private static long sampledBelow(double rate) {
        return rate >= 1 ? 0 : new BigDecimal(rate).multiply(DRAWS)
            .setScale(0, RoundingMode.HALF_EVEN).toBigInteger().longValue();
    }

    @Override
    public String toString() {
        return word == Word.AUDIT ? "audit:" + rate : word.name().toLowerCase(Locale.ROOT);
    }
}
