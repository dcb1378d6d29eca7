package batchval.claims;

import java.util.zip.CRC32C;

/** CRC-32C of a batch whose head has changed, from the crc that it had: its tail is not read. */
public final class Crc32c {
    private static final int POLYNOMIAL = 0x82F63B78;

    /** Return the CRC-32C of bytes[from:to]. */
    public static int of(byte[] bytes, int from, int to) {
        CRC32C crc = new CRC32C();
        crc.update(bytes, from, to - from);
        return (int) crc.getValue();
    }

    /**
     * Return the crc of a batch once the bytes under it before the tail are others. What is wrong
     * with the tail stays wrong.
     *
     * <pre>new = old xor crc(old head, zeros) xor crc(new head, zeros)</pre>
     */
    public static int ofOtherHead(int crc, byte[] before, int beforeFrom, int beforeTo,
                                  byte[] after, int afterFrom, int afterTo, long tail) {
        int changed = of(before, beforeFrom, beforeTo) ^ of(after, afterFrom, afterTo);
        return crc ^ moved(changed, tail);
    }

    /** Return the difference of two crcs after as many more bytes, equal in both. */
    static int moved(int difference, long bytes) {
        int power = 0x00800000;  // x^8: one byte
        for (long left = bytes; left != 0; left >>>= 1) {
            if ((left & 1) != 0)
                difference = multiply(difference, power);
            power = multiply(power, power);
        }
        return difference;
    }

    /** Multiply polynomials modulo CRC-32C's; bit 31 is x^0. */
    private static int multiply(int a, int b) {
        int product = 0;
        for (int bit = 0x80000000; bit != 0; bit >>>= 1) {
            if ((a & bit) != 0)
                product ^= b;
            b = (b & 1) != 0 ? b >>> 1 ^ POLYNOMIAL : b >>> 1;
        }
        return product;
    }

    private Crc32c() { }
}
