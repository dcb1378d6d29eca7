package batchval.claims;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.StandardCharsets;

/**
 * Reads the uncompressed records of a batch of magic 2, byte after byte, and keeps what claims are
 * about.
 * <pre>
 * record   length, attributes:1 timestamp_delta offset_delta key_length key value_length value
 *          headers_count (key_length key value_length value)*; numbers are zigzag varints
 * </pre>
 */
public final class RecordWalk {
    private static final int HEADER_BYTES = 61;
    private static final int LONGEST_VARINT = 5;
    private static final int LONGEST_VARLONG = 10;

    private enum State {
        LENGTH, ATTRIBUTES, TIMESTAMP, OFFSET, KEY_LENGTH, KEY, VALUE_LENGTH, VALUE_PREFIX, VALUE,
        HEADERS, HEADER_KEY_LENGTH, HEADER_KEY, HEADER_VALUE_LENGTH, HEADER_VALUE, BROKEN
    }

    private final long baseTimestamp;
    private final Long logAppendTime;
    private final int largestRecord;
    /** Null: no schema ids are collected, and values are passed over whole. */
    private final SeenIds seenIds;

    private State state = State.LENGTH;
    // of the varint that is being read
    private long varint = 0;
    private int varintBytes = 0;
    // of the record that is being read
    private int length = 0;
    private long recordStart = 0;
    private int headersLeft = 0;
    // of the key, value or header that is being read
    private int left = 0;
    private long valuePrefix = 0;
    private int valuePrefixLeft = 0;
    private byte[] headerKey = new byte[64];
    private int headerKeySize = 0;
    private CharsetDecoder decoder = null;

    private long position = 0;
    private int records = 0;
    private int nullKeys = 0;
    private long minTimestamp = Long.MAX_VALUE;
    private long maxTimestamp = Long.MIN_VALUE;
    private int longest = 0;
    private boolean outsideFormat = false;
    private boolean oneAboveLargest = false;
    private boolean ended = false;

    /**
     * @param baseTimestamp the header's base timestamp
     * @param logAppendTime the timestamp of all records, where the header has the LogAppendTime
     *     bit; else null
     * @param largestRecord the largest length that the topic allows
     * @param schemaIds whether the schema ids of the values are collected: {@link #lie} needs them
     *     for claims with a field 1
     */
    public RecordWalk(long baseTimestamp, Long logAppendTime, int largestRecord,
                      boolean schemaIds) {
        this.baseTimestamp = baseTimestamp;
        this.logAppendTime = logAppendTime;
        this.largestRecord = largestRecord;
        this.seenIds = schemaIds ? new SeenIds() : null;
    }

    /** Return how many of the next bytes may be passed over with {@link #skipped}. */
    public int skippable() {
        return state == State.KEY || state == State.VALUE || state == State.HEADER_VALUE ? left
            : state == State.BROKEN ? Integer.MAX_VALUE : 0;
    }

    /** Pass over as many bytes, at most {@link #skippable}. */
    public void skipped(int bytes) {
        position += bytes;
        if (state == State.BROKEN)
            return;
        left -= bytes;
        if (left == 0)
            endOfBytes();
    }

    /** Read the next bytes. */
    public void read(byte[] bytes, int from, int size) {
        int end = from + size;
        int at = from;
        while (at < end) {
            int skip = Math.min(skippable(), end - at);
            if (skip > 0) {
                skipped(skip);
                at += skip;
            } else {
                read(bytes[at++]);
            }
        }
    }

    /** Read the next byte. */
    public void read(byte b) {
        position++;
        switch (state) {
            case KEY, VALUE, HEADER_VALUE -> {
                if (--left == 0)
                    endOfBytes();
            }
            case VALUE_PREFIX -> readValuePrefix(b);
            case HEADER_KEY -> {
                if (headerKeySize == headerKey.length)
                    headerKey = java.util.Arrays.copyOf(headerKey, 2 * headerKeySize);
                headerKey[headerKeySize++] = b;
                if (--left == 0)
                    endOfBytes();
            }
            case ATTRIBUTES -> {
                outsideFormat |= b != 0;
                state = State.TIMESTAMP;
            }
            case BROKEN -> { }
            default -> readVarint(b);
        }
    }

    /** Note that the stream has ended. */
    public void ended() {
        ended = true;
    }

    private void readVarint(byte b) {
        int most = state == State.TIMESTAMP ? LONGEST_VARLONG : LONGEST_VARINT;
        varint |= (long) (b & 0x7F) << 7 * varintBytes;
        varintBytes++;
        if (b < 0) {
            if (varintBytes == most)
                state = State.BROKEN;
            return;
        }
        int size = varintBytes;
        long value = state == State.TIMESTAMP ? varint : varint & 0xFFFFFFFFL;
        varint = 0;
        varintBytes = 0;
        value = value >>> 1 ^ -(value & 1);
        if (state == State.TIMESTAMP) {
            timestamp(logAppendTime == null ? baseTimestamp + value : logAppendTime);
            state = State.OFFSET;
        } else {
            number((int) value, size);
        }
    }

    private void number(int value, int size) {
        switch (state) {
            case LENGTH -> {
                length = value;
                recordStart = position;
                longest = Math.max(longest, value);
                oneAboveLargest |= value > largestRecord;
                outsideFormat |= value < 0 || size != sizeOfVarint(value);
                state = value < 0 ? State.BROKEN : State.ATTRIBUTES;
            }
            case OFFSET -> {
                outsideFormat |= value != records;
                state = State.KEY_LENGTH;
            }
            case KEY_LENGTH -> {
                if (value < 0)
                    nullKeys++;
                bytes(value, State.KEY);
            }
            case VALUE_LENGTH -> value(value);
            case HEADERS -> {
                headersLeft = value;
                if (value < 0)
                    state = State.BROKEN;
                else
                    nextHeader();
            }
            case HEADER_KEY_LENGTH -> {
                headerKeySize = 0;
                if (value < 0)
                    state = State.BROKEN;
                else
                    bytes(value, State.HEADER_KEY);
            }
            case HEADER_VALUE_LENGTH -> bytes(value, State.HEADER_VALUE);
            default -> throw new IllegalStateException(state.name());
        }
    }

    private void timestamp(long value) {
        minTimestamp = Math.min(minTimestamp, value);
        maxTimestamp = Math.max(maxTimestamp, value);
        outsideFormat |= value < -1;
    }

    /** Expect a value of as many bytes. The first ones are read where they may be a schema id. */
    private void value(int size) {
        if (seenIds == null || !seenIds.isStated()) {
            bytes(size, State.VALUE);
        } else if (size >= SchemaIds.PREFIX) {
            left = size;
            valuePrefix = 0;
            valuePrefixLeft = SchemaIds.PREFIX;
            state = State.VALUE_PREFIX;
        } else {
            if (size < 0)
                seenIds.noteNull();
            else
                seenIds.noteOther();
            bytes(size, State.VALUE);
        }
    }

    private void readValuePrefix(byte b) {
        valuePrefix = valuePrefix << Byte.SIZE | b & 0xFF;
        left--;
        if (--valuePrefixLeft > 0)
            return;
        if (valuePrefix >>> Integer.SIZE == 0)
            seenIds.noteId((int) valuePrefix);
        else
            seenIds.noteOther();
        bytes(left, State.VALUE);
    }

    /** Expect as many bytes; -1 is null. */
    private void bytes(int size, State next) {
        outsideFormat |= size < -1;
        left = size;
        state = next;
        if (size <= 0)
            endOfBytes();
    }

    private void endOfBytes() {
        switch (state) {
            case KEY -> state = State.VALUE_LENGTH;
            case VALUE -> state = State.HEADERS;
            case HEADER_KEY -> {
                outsideFormat |= !isUtf8();
                state = State.HEADER_VALUE_LENGTH;
            }
            case HEADER_VALUE -> {
                headersLeft--;
                nextHeader();
            }
            default -> throw new IllegalStateException(state.name());
        }
    }

    private void nextHeader() {
        if (headersLeft > 0) {
            state = State.HEADER_KEY_LENGTH;
            return;
        }
        outsideFormat |= position - recordStart != length;
        records++;
        state = State.LENGTH;
    }

    private boolean isUtf8() {
        for (int i = 0; i < headerKeySize; i++)
            if (headerKey[i] < 0)
                return decodes();
        return true;
    }

    private boolean decodes() {
        if (decoder == null)
            decoder = StandardCharsets.UTF_8.newDecoder();
        try {
            decoder.decode(ByteBuffer.wrap(headerKey, 0, headerKeySize));
            return true;
        } catch (CharacterCodingException e) {
            return false;
        }
    }

    private static int sizeOfVarint(int value) {
        int size = 1;
        for (int v = value << 1 ^ value >> 31; (v & ~0x7F) != 0; v >>>= 7)
            size++;
        return size;
    }

    /** Return how many bytes were read. */
    public long position() {
        return position;
    }

    /** Return whether the stream has ended after a whole record. */
    public boolean isWhole() {
        return ended && state == State.LENGTH && varintBytes == 0;
    }

    /** Return the largest length that the topic allows. */
    public int largestRecord() {
        return largestRecord;
    }

    /** Return whether a record was longer than the topic allows. */
    public boolean hasOneAboveLargest() {
        return oneAboveLargest;
    }

    /**
     * Return the schema ids of the values, or null: one of them has none, there are too many, or
     * they were not collected.
     */
    public SchemaIds schemaIds() {
        return seenIds == null ? null : seenIds.ids();
    }

    /**
     * Return what a claim gets wrong about the records, with both sides, or null: the claims are
     * honest. The walk is whole.
     *
     * @param headerCount        the header's count
     * @param headerMaxTimestamp the header's max timestamp
     * @throws IllegalStateException the claims have a field 1, and no schema ids were collected
     */
    public String lie(Claims claims, int headerCount, long headerMaxTimestamp) {
        if (!isWhole() || outsideFormat)
            return "the records are not as claims promise that they are";
        if (claims.recordsNumber() != records || headerCount != records)
            return differ("records_number", claims.recordsNumber() == records ? headerCount
                : claims.recordsNumber(), records);
        if (claims.batchMinTimestamp() != minTimestamp)
            return differ("batch_min_timestamp", claims.batchMinTimestamp(), minTimestamp);
        if (headerMaxTimestamp != maxTimestamp)
            return differ("the header's max timestamp", headerMaxTimestamp, maxTimestamp);
        byte strongest = Claims.strongestNullKeys(nullKeys, records);
        if (claims.nullKeys() != strongest
            && !(claims.nullKeys() == Claims.SOME_KEYS_NULL && strongest == Claims.NO_KEY_NULL))
            return differ("null_keys", claims.nullKeys(), strongest);
        if (claims.version() == 1)
            return null;
        if (claims.uncompressedBytes() != HEADER_BYTES + position)
            return differ("uncompressed_bytes", claims.uncompressedBytes(),
                HEADER_BYTES + position);
        if (claims.maxRecordBytes() != longest)
            return differ("max_record_bytes", claims.maxRecordBytes(), longest);
        return lieAboutSchemaIds(claims.schemaIds());
    }

    private String lieAboutSchemaIds(SchemaIds stated) {
        if (stated == null)
            return null;
        if (seenIds == null)
            throw new IllegalStateException("the walk has not collected schema ids");
        return stated.covers(seenIds.ids()) ? null
            : "schema ids are claimed that the values do not keep to";
    }

    private static String differ(String name, long stated, long found) {
        return name + " is " + stated + ", but the records give " + found;
    }
}
