"""The precise internal reason of a refusal, kept beside Kafka's code: a small number in the core, a
sentence here.

``{i}`` stands for the record's index, ``{a}`` and ``{b}`` for the two numbers the core noted. The
order is that of the enumeration in reasons.pxd (a test compares them).
"""

from __future__ import annotations

__all__ = ["REASONS", "sentence"]

REASONS: dict[str, str] = {
    "NO_REASON": "",
    # batches and stages
    "SIZE_BELOW_14": "batch size field {a} is below 14",
    "SIZE_OVERFLOWS": "batch size field {a} overflows when Kafka adds 12",
    "MAGIC_NOT_0_1_2": "magic {a}",
    "NO_BATCH": "no batch",
    "MAGIC_NOT_2": "magic {a} in a produce request",
    "ZSTD_BEFORE_V7": "zstd in a produce request of version {a}",
    "SECOND_BATCH": "more than one batch",
    "LEADER_EPOCH": "partition leader epoch {a}, the leader's is {b}",
    "BASE_OFFSET": "base offset {a}",
    "TOO_SMALL_FOR_FIELDS": "{a} bytes are too few for the fields that Kafka reads",
    "LARGER_THAN_MAX": "{a} bytes, max.message.bytes is {b}",
    "SMALLER_THAN_HEADER": "{a} bytes are fewer than a batch's header",
    "WRONG_CRC": "stored crc {a}, computed {b}",
    "CODEC_ID": "compression codec {a}",
    "LAST_OFFSET_ORDER": "last offset {a} does not follow {b}",
    "OTHER_MAGIC": "magic {a}, the first batch has {b}",
    "OFFSET_RANGE": "last offset delta {a}",
    "COUNT": "records count {a}",
    "COUNT_AND_DELTA": "records count {a}, last offset delta {b}",
    "CONTROL": "control bit set by a client",
    "SEQUENCE": "base sequence {a} with producer id {b}",
    "TRANSACTIONAL": "transactional, target magic {a}",
    "IDEMPOTENT": "producer id {b}, target magic {a}",
    # the append to the log
    "BELOW_LOG_END": "the first offset {a} is below {b}, the end of the log",
    "EPOCH_ENTRY": "partition leader epoch {a} at base offset {b}: both must be 0 or above",
    "PRODUCER_EPOCH": "producer epoch {a} is below {b}, the last one seen",
    "OUTSIDE_TRANSACTION": "the transaction of producer id {a} has not ended",
    "COORDINATOR_EPOCH": "coordinator epoch {a} is below {b}, the last one seen",
    "MARKER_KEY": "a transaction marker's key has {a} bytes, or a version below 0; it takes 4 bytes",
    "MARKER_TYPE": "control type {a}: a producer's marker is 0 (abort) or 1 (commit)",
    "MARKER_VALUE": "a transaction marker's value has {a} bytes, or a version below 0; it takes 6 bytes",
    "MARKER_ORIGIN": "a transaction marker of producer id {a} from a raft leader",
    "SEGMENT_RANGE": "the last offset {a} does not fit a segment whose base offset is {b}, or is the largest of all",
    # records of magic 2
    "RECORD_CUT_OFF": "record {i}: the batch ends inside it",
    "RECORD_LENGTH_VARINT": "record {i}: its length is a varint of more than 5 bytes",
    "RECORD_LENGTH_NEGATIVE": "record {i}: length {a}",
    "RECORD_LENGTH_ABOVE_MAX": "record {i}: length {a} is above max.decompressed.message.bytes {b}",
    "RECORD_LENGTH_NO_ARRAY": "record {i}: length {a} is above {b}, the longest array of a JVM",
    "RECORD_LENGTH_PAST_END": "record {i}: length {a} runs past the end of the batch",
    "RECORD_LENGTH_WRONG": "record {i}: length {a}, its fields take {b} bytes",
    "RECORD_VARINT": "record {i}: a varint that is too long",
    "RECORD_FIELD_PAST_END": "record {i}: a field of {a} bytes runs past the end",
    "HEADERS_COUNT": "record {i}: {a} headers",
    "HEADER_KEY_LENGTH": "record {i}: header key length {a}",
    "BYTES_AFTER_RECORDS": "bytes are left behind the last of {a} records",
    "RECORDS_COUNT_NEGATIVE": "records count {a}",
    "RECORDS_COUNT_NO_ARRAY": "records count {a} is above {b}, the longest array of a JVM",
    "OFFSET_DELTAS": "record {i}: offset delta {a}; Kafka would have to rebuild records whose keys it has skipped",
    # record errors
    "RECORDS_REFUSED": "{a} records refused",
    # rebuilding
    "REBUILD_TIMESTAMP": "record {i}: timestamp {a} cannot be written",
    "REBUILD_HEADERS": "record {i}: headers cannot be written with magic {a}",
    "REBUILD_ZSTD": "zstd cannot be written with magic {a}",
    "REBUILD_TRANSACTIONAL": "a transactional batch cannot be written with magic {a}",
    "REBUILD_NO_PRODUCER_ID": "a transactional batch without a producer id cannot be written",
    "REBUILD_PRODUCER_EPOCH": "producer id {a} without an epoch cannot be written",
    "REBUILD_SEQUENCE": "producer id {a} without a base sequence cannot be written",
    "REBUILD_NO_RECORD": "a batch without records has no last offset for LogAppendTime",
    "REBUILD_OFFSET": "record {i}: the offset that follows first_offset {a} is above 2^63 - 1",
    "REBUILD_CLOCK": "now_ms {a} cannot be written as LogAppendTime with magic {b}",
    "REBUILT_LARGER_THAN_MAX": "rebuilt to {a} bytes, max.message.bytes is {b}",
    # magic 0 and 1
    "MESSAGE_FIELDS": "message {i}: its key or value runs past its end",
    "WRAPPER_ZSTD": "zstd in a message of magic {a}",
    "WRAPPER_NULL": "a compressed message without a value",
    "WRAPPER_EMPTY": "a compressed message that holds no message",
    "WRAPPER_OFFSET": "wrapper offset {a} is below the last inner offset {b}",
    "INNER_COMPRESSED": "message {i}: compressed inside a compressed message",
    "INNER_SIZE": "message {i}: size field {a} is below 14",
    "INNER_SIZE_ABOVE_MAX": "message {i}: size {a} is above max.decompressed.message.bytes {b}",
    "INNER_SIZE_NO_ARRAY": "message {i}: size {a} is above {b}, the longest array of a JVM",
    "INNER_CRC": "message {i}: stored crc {a}, computed {b}",
    # compressed streams
    "STREAM_EMPTY": "the compressed payload is empty",
    "GZIP_HEADER": "gzip: the member's header is damaged",
    "GZIP_DATA": "gzip: the deflate data is damaged",
    "GZIP_CUT_OFF": "gzip: the stream is cut off",
    "GZIP_TRAILER": "gzip: the member's checksum or size is wrong",
    "SNAPPY_CHUNK_SIZE": "snappy: a chunk size of {a}",
    "SNAPPY_CUT_OFF": "snappy: the stream is cut off",
    "SNAPPY_BLOCK": "snappy: a block is damaged",
    "SNAPPY_HEADER": "snappy: an incompatible header inside the stream",
    "LZ4_MAGIC": "lz4: not a frame",
    "LZ4_DESCRIPTOR": "lz4: a frame descriptor that Kafka does not read",
    "LZ4_DESCRIPTOR_CHECKSUM": "lz4: the frame descriptor's checksum is wrong",
    "LZ4_CUT_OFF": "lz4: the stream is cut off",
    "LZ4_BLOCK_SIZE": "lz4: a block size of {a}",
    "LZ4_BLOCK": "lz4: a block is damaged",
    "LZ4_BLOCK_CHECKSUM": "lz4: a block's checksum is wrong",
    "ZSTD_MAGIC": "zstd: not a frame",
    "ZSTD_FRAME_HEADER": "zstd: a frame header that cannot be read",
    "ZSTD_WINDOW": "zstd: a window of {a} bytes",
    "ZSTD_CUT_OFF": "zstd: the stream is cut off",
    "ZSTD_BLOCK": "zstd: a block or checksum is damaged",
    # extras and findings
    "DECOMPRESSED_LIMIT": "more than {a} bytes decompressed",
    "EXTRA_FOUND": "",
    "PARTIAL_BATCH": "{a} bytes of a batch of {b}",
    "ZEROS_TO_THE_END": "{a} zero bytes to the end",
    "OFFSETS_BACK": "base offset {a}, the batch before ends at {b}",
    "OFFSETS_MISSING": "base offset {a}, the batch before ends at {b}",
    "EPOCH_BACK": "partition leader epoch {a}, the batch before has {b}",
    "SEQUENCE_MISSING": "base sequence {a}, expected {b}",
    "LYING_CLAIMS": "the claims in the header are not what the records say",
    "CLAIMED_COUNT": "records_number is claimed to be {a}, but there are {b} records",
    "CLAIMED_MIN_TIMESTAMP": "batch_min_timestamp is claimed to be {a}, but the lowest of the records is {b}",
    "CLAIMED_NULL_KEYS": "null_keys is claimed to be {a}, but the records say {b}",
    "CLAIMED_SCHEMA_IDS": "schema ids are claimed that the values do not keep to",
    "CLAIMED_UNCOMPRESSED_BYTES": "uncompressed_bytes is claimed to be {a}, but there are {b} bytes",
    "CLAIMED_MAX_RECORD_BYTES": "max_record_bytes is claimed to be {a}, but the longest record has {b} bytes",
    "CLAIMED_MAX_TIMESTAMP": "max_timestamp is {a} in a header with claims, but the highest of the records is {b}",
    "CLAIMED_ORDER": "the batch has claims, but its records are not as claims promise",
    # record rules: the first record, how many there are, and what was found; results have the
    # sentences of batchval.core.record_errors, which know the topic's rules
    "RECORD_SCHEMA_ID": "record {i}: schema id {b} is not allowed; {a} records break record rules",
    "RECORD_SCHEMA_FORM": "record {i}: no allowed schema id at its place; {a} records break record rules",
    "RECORD_KEY_SIZE": "record {i}: key of {b} bytes, max_key_bytes is less; {a} records break record rules",
    "RECORD_VALUE_SIZE": "record {i}: value of {b} bytes, max_value_bytes is less; {a} records break record rules",
    "RECORD_HEADERS": "record {i}: {b} headers, max_headers is less; {a} records break record rules",
    "RECORD_HEADER_MISSING": "record {i}: a required header is missing; {a} records break record rules",
    "RECORD_HEADER_FORBIDDEN": "record {i}: a header is forbidden; {a} records break record rules",
    "RECORD_TOMBSTONE": "record {i}: value is null, tombstones are refused; {a} records break record rules",
    "RECORD_KEY_UTF8": "record {i}: key of {b} bytes is not UTF-8; {a} records break record rules",
}

_SENTENCES = tuple(REASONS.values())
_REFUSED = list(REASONS).index("RECORDS_REFUSED")


def sentence(reason: int, record: int, a: int, b: int) -> str:
    """The reason as one line for people."""
    if reason == _REFUSED and a == 1:
        return "1 record refused"
    return _SENTENCES[reason].format(i=record, a=a, b=b)
