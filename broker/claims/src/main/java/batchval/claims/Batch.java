package batchval.claims;

/** Where the fields of a record batch of magic 2 stand, and the numbers of its codecs. */
final class Batch {
    static final int LENGTH = 8;
    static final int LOG_OVERHEAD = 12;
    static final int MAGIC = 16;
    static final int CRC = 17;
    static final int ATTRIBUTES = 21;
    static final int RECORDS = 61;

    static final int CODEC_MASK = 7;
    static final int GZIP = 1;
    static final int ZSTD = 4;

    private Batch() { }
}
