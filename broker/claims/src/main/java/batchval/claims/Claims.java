package batchval.claims;

import java.util.Arrays;
import java.util.List;

/**
 * What a client states about a record batch (docs/concepts/claims.md, KAFKA-8364).
 *
 * @param version           1 or 2; version 1 has the first three claims only, and 0 for both sizes
 * @param batchMinTimestamp the lowest timestamp of the records, ms
 * @param recordsNumber     the number of records
 * @param nullKeys          {@link #SOME_KEYS_NULL}, {@link #ALL_KEYS_NULL} or {@link #NO_KEY_NULL}
 * @param uncompressedBytes the header and the records, uncompressed
 * @param maxRecordBytes    the longest record, without its length field
 * @param fields            further claims, in rising order of their numbers
 */
public record Claims(int version, long batchMinTimestamp, int recordsNumber, byte nullKeys,
                     int uncompressedBytes, int maxRecordBytes, List<Field> fields) {
    /** Not every key is null, and nothing more is known. */
    public static final byte SOME_KEYS_NULL = 0;
    /** Every key is null. */
    public static final byte ALL_KEYS_NULL = 1;
    /** No key is null; an empty key is a key. */
    public static final byte NO_KEY_NULL = 2;

    /** A numbered claim; the number is an unsigned int. */
    public record Field(int number, byte[] bytes) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Field field && number == field.number
                && Arrays.equals(bytes, field.bytes);
        }

        @Override
        public int hashCode() {
            return 31 * number + Arrays.hashCode(bytes);
        }
    }

    /** Return claims of version 1. */
    public static Claims version1(long batchMinTimestamp, int recordsNumber, byte nullKeys) {
        return new Claims(1, batchMinTimestamp, recordsNumber, nullKeys, 0, 0, List.of());
    }

    /** Return claims of version 2 without further fields. */
    public static Claims version2(long batchMinTimestamp, int recordsNumber, byte nullKeys,
                                  int uncompressedBytes, int maxRecordBytes) {
        return new Claims(2, batchMinTimestamp, recordsNumber, nullKeys, uncompressedBytes,
            maxRecordBytes, List.of());
    }

    /** Return these claims with field 1 instead of the fields that they have. */
    public Claims withSchemaIds(SchemaIds ids) {
        return new Claims(version, batchMinTimestamp, recordsNumber, nullKeys, uncompressedBytes,
            maxRecordBytes, List.of(new Field(SchemaIds.FIELD, ids.encode())));
    }

    /** Return what field 1 states, or null: there is none, or one of another form. */
    public SchemaIds schemaIds() {
        for (Field field : fields)
            if (field.number == SchemaIds.FIELD)
                return SchemaIds.decode(field.bytes);
        return null;
    }

    /** Return the strongest {@code null_keys} that is true of this many records. */
    public static byte strongestNullKeys(int nullKeys, int records) {
        return nullKeys == 0 ? NO_KEY_NULL : nullKeys == records ? ALL_KEYS_NULL : SOME_KEYS_NULL;
    }

    /**
     * Return whether two carriers of a batch differ: where one is of version 1, in its three
     * claims.
     */
    public boolean differsFrom(Claims other) {
        if (batchMinTimestamp != other.batchMinTimestamp || recordsNumber != other.recordsNumber
            || nullKeys != other.nullKeys)
            return true;
        if (version == 1 || other.version == 1)
            return false;
        return uncompressedBytes != other.uncompressedBytes
            || maxRecordBytes != other.maxRecordBytes || !fields.equals(other.fields);
    }
}
