"""The precise reason of a refusal, in addition to Kafka's code: a number in the core, a
sentence here.

``{i}`` stands for the record's index, ``{a}`` and ``{b}`` for the two numbers that the core noted,
``{n}`` for ``{b}`` + 1. ``python tools/generate_rules.py`` writes the numbers, in this order, to
reasons.pxd.
"""

from __future__ import annotations

__all__ = ["BROKEN_RULES", "REASONS", "count_of_broken", "sentence"]

REASONS: dict[str, str] = {
    "NO_REASON": "",
    # batches and stages
    "SIZE_BELOW_14": "batch size field {a} is below 14",
    "SIZE_OVERFLOWS": "batch size field {a} overflows when Kafka adds 12",
    "MAGIC_NOT_0_1_2": "magic {a} is unknown: expected 0, 1 or 2",
    "NO_BATCH": "the records hold no batch",
    "MAGIC_NOT_2": "magic is {a}, but produce requests may only contain batches of magic 2",
    "ZSTD_BEFORE_V7": "Produce requests with version {a} are not allowed to use "
    "ZStandard compression",
    "SECOND_BATCH": "the records hold more than one batch",
    "LEADER_EPOCH": "partition leader epoch is {a}, but the leader's is {b}",
    "BASE_OFFSET": "base offset is {a}, but must be 0",
    "TOO_SMALL_FOR_FIELDS": "{a} bytes are too few for the fields that Kafka reads",
    "LARGER_THAN_MAX": "the batch has {a} bytes, but max.message.bytes is {b}",
    "SMALLER_THAN_HEADER": "{a} bytes are fewer than a batch's header",
    "WRONG_CRC": "Record is corrupt (stored crc = {a}, computed crc = {b})",
    "CODEC_ID": "compression codec {a} is unknown: expected 0 to 4",
    "LAST_OFFSET_ORDER": "last offset {a} does not follow {b}",
    "OTHER_MAGIC": "magic is {a}, but the first batch has {b}",
    "OFFSET_RANGE": "last_offset_delta is {a}: the range of offsets is empty or overflows",
    "COUNT": "records_count is {a}, but must be above 0",
    "COUNT_AND_DELTA": "records_count is {a}, but last_offset_delta {b} implies {n} records",
    "CONTROL": "Clients are not allowed to write control records",
    "SEQUENCE": "base sequence is {a}, but producer id {b} requires 0 or above",
    "TRANSACTIONAL": "a transactional batch cannot be stored with magic {a}",
    "IDEMPOTENT": "a batch with producer id {b} cannot be stored with magic {a}",
    # the append to the log
    "BELOW_LOG_END": "the first offset {a} is below {b}, the end of the log",
    "EPOCH_ENTRY": "partition leader epoch {a} at base offset {b}: both must be 0 or above",
    "PRODUCER_EPOCH": "producer epoch {a} is below {b}, the last one seen",
    "OUTSIDE_TRANSACTION": "the transaction of producer id {a} has not ended",
    "COORDINATOR_EPOCH": "coordinator epoch {a} is below {b}, the last one seen",
    "MARKER_KEY": "a transaction marker's key has {a} bytes, or a version below 0; it takes 4 bytes",
    "MARKER_TYPE": "control type {a}: a producer's marker is 0 (abort) or 1 (commit)",
    "MARKER_VALUE": "a transaction marker's value has {a} bytes, or a version below 0; it takes 6 bytes",
    "MARKER_ORIGIN": "a raft leader cannot append a transaction marker (producer id {a})",
    "SEGMENT_RANGE": "the last offset {a} does not fit a segment whose base offset is {b}, or is the largest of all",
    # records of magic 2
    "RECORD_CUT_OFF": "record {i}: the batch ends inside it",
    "RECORD_LENGTH_VARINT": "record {i}: its length is a varint of more than 5 bytes",
    "RECORD_LENGTH_NEGATIVE": "record {i}: length {a} is negative",
    "RECORD_LENGTH_ABOVE_MAX": "record {i}: length {a} is above max.decompressed.message.bytes {b}",
    "RECORD_LENGTH_NO_ARRAY": "record {i}: length {a} is above {b}, the longest array of a JVM",
    "RECORD_LENGTH_PAST_END": "record {i}: length {a} runs past the end of the batch",
    "RECORD_LENGTH_WRONG": "record {i}: length is {a}, but its fields take {b} bytes",
    "RECORD_VARINT": "record {i}: a varint is too long",
    "RECORD_FIELD_PAST_END": "record {i}: a field of {a} bytes runs past the end",
    "HEADERS_COUNT_NO_ARRAY": (
        "record {i}: the number of headers, {a}, is above {b}, the longest array of a JVM"
    ),
    "HEADERS_COUNT": "record {i}: the number of headers, {a}, is negative or too large",
    "HEADER_KEY_LENGTH": "record {i}: header key length {a} is negative",
    "BYTES_AFTER_RECORDS": "bytes are left after the last of {a} records",
    "RECORDS_COUNT_NEGATIVE": "records_count {a} is negative",
    "RECORDS_COUNT_NO_ARRAY": "records_count {a} is above {b}, the longest array of a JVM",
    "OFFSET_DELTAS": "record {i}: offset delta {a}; Kafka would have to rebuild records whose keys it has skipped",
    # record errors
    "RECORDS_REFUSED": "{a} records were refused",
    "TIMESTAMPS_REFUSED": "records have timestamps that are not within [{a}, {b}]",
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
    "REBUILT_LARGER_THAN_MAX": "the rebuilt batch has {a} bytes, but max.message.bytes is {b}",
    # magic 0 and 1
    "MESSAGE_FIELDS": "message {i}: its key or value runs past its end",
    "WRAPPER_ZSTD": "a message of magic {a} cannot use zstd",
    "WRAPPER_NULL": "a compressed message has no value",
    "WRAPPER_EMPTY": "a compressed message holds no message",
    "WRAPPER_OFFSET": "wrapper offset {a} is below the last inner offset {b}",
    "INNER_COMPRESSED": "message {i} is compressed inside a compressed message",
    "INNER_SIZE": "message {i}: size field {a} is below 14",
    "INNER_SIZE_ABOVE_MAX": "message {i}: size {a} is above max.decompressed.message.bytes {b}",
    "INNER_SIZE_NO_ARRAY": "message {i}: size {a} is above {b}, the longest array of a JVM",
    "INNER_CRC": "message {i}: Record is corrupt (stored crc = {a}, computed crc = {b})",
    # compressed streams
    "STREAM_EMPTY": "the compressed payload is empty",
    "GZIP_HEADER": "gzip: the member's header is damaged",
    "GZIP_DATA": "gzip: the deflate data is damaged",
    "GZIP_CUT_OFF": "gzip: the stream is cut off",
    "GZIP_TRAILER": "gzip: the member's checksum or size is wrong",
    "SNAPPY_CHUNK_SIZE": "snappy: chunk size {a} is invalid",
    "SNAPPY_CUT_OFF": "snappy: the stream is cut off",
    "SNAPPY_BLOCK": "snappy: a block is damaged",
    "SNAPPY_HEADER": "snappy: a header inside the stream is incompatible",
    "LZ4_MAGIC": "lz4: the payload is not a frame",
    "LZ4_DESCRIPTOR": "lz4: Kafka does not read this frame descriptor",
    "LZ4_DESCRIPTOR_CHECKSUM": "lz4: the frame descriptor's checksum is wrong",
    "LZ4_CUT_OFF": "lz4: the stream is cut off",
    "LZ4_BLOCK_SIZE": "lz4: block size {a} is invalid",
    "LZ4_EMPTY_BLOCK": "lz4: a block without content stands where Kafka reads a byte",
    "LZ4_BLOCK": "lz4: a block is damaged",
    "LZ4_BLOCK_CHECKSUM": "lz4: a block's checksum is wrong",
    "ZSTD_MAGIC": "zstd: the payload is not a frame",
    "ZSTD_FRAME_HEADER": "zstd: the frame header cannot be read",
    "ZSTD_WINDOW": "zstd: a window of {a} bytes is too large",
    "ZSTD_CUT_OFF": "zstd: the stream is cut off",
    "ZSTD_BLOCK": "zstd: a block or checksum is damaged",
    # extras and findings
    "DECOMPRESSED_LIMIT": "the batch decompresses to more than max_decompressed_bytes, {a}",
    "EXTRA_FOUND": "",
    "PARTIAL_BATCH": "only {a} of {b} bytes of a batch are there",
    "ZEROS_TO_THE_END": "{a} zero bytes to the end",
    "OFFSETS_BACK": "base offset is {a}, but the batch before ends at {b}",
    "OFFSETS_MISSING": "base offset is {a}, but the batch before ends at {b}",
    "EPOCH_BACK": "partition leader epoch is {a}, but the batch before has {b}",
    "SEQUENCE_MISSING": "base sequence is {a}, but {b} was expected",
    "LYING_CLAIMS": "the records contradict the claims in the header",
    "CLAIMED_COUNT": "records_number is claimed to be {a}, but there are {b} records",
    "CLAIMED_MIN_TIMESTAMP": "batch_min_timestamp is claimed to be {a}, but the lowest of the records is {b}",
    "CLAIMED_NULL_KEYS": "null_keys is claimed to be {a}, but the records say {b}",
    "CLAIMED_SCHEMA_IDS": "the values have other schema ids than claimed",
    "CLAIMED_UNCOMPRESSED_BYTES": "uncompressed_bytes is claimed to be {a}, but there are {b} bytes",
    "CLAIMED_MAX_RECORD_BYTES": "max_record_bytes is claimed to be {a}, but the longest record has {b} bytes",
    "CLAIMED_MAX_TIMESTAMP": "max_timestamp is {a} in a header with claims, but the highest of the records is {b}",
    "CLAIMED_ORDER": "the batch has claims, but its records are not in the required order",
    # record rules, two for R1 and then one each in the order of their ids, at the end: the first
    # record, and what was found; ``sentence`` adds how many there are. Results have the sentences
    # of BROKEN_RULES
    "RECORD_SCHEMA_ID": "record {i}: schema id {b} is not allowed",
    "RECORD_SCHEMA_FORM": "record {i}: no allowed schema id at its place",
    "RECORD_KEY_SIZE": "record {i}: key of {b} bytes is longer than max_key_bytes",
    "RECORD_VALUE_SIZE": "record {i}: value of {b} bytes is longer than max_value_bytes",
    "RECORD_HEADERS": "record {i}: the number of headers, {b}, is above max_headers",
    "RECORD_HEADER_MISSING": "record {i}: a required header is missing",
    "RECORD_HEADER_FORBIDDEN": "record {i}: a header is forbidden",
    "RECORD_TOMBSTONE": "record {i}: value is null, tombstones are refused",
    "RECORD_KEY_UTF8": "record {i}: key of {b} bytes is not UTF-8",
}

#: Record rules, by id, where RecordRules is known: ``{a}`` stands for what was found, ``{rules}`` for
#: the RecordRules, ``{header!r}`` for the header at fault. Sentences about keys begin with "key". R1
#: has many sentences: batchval.core.records.record_errors.
BROKEN_RULES: dict[str, str] = {
    "R2": "key has {a} bytes, max_key_bytes is {rules.max_key_bytes}",
    "R3": "value has {a} bytes, max_value_bytes is {rules.max_value_bytes}",
    "R4": "{a} headers, max_headers is {rules.max_headers}",
    "R5": "header {header!r} is missing, which is required",
    "R6": "header {header!r} is forbidden",
    "R7": "value is null, tombstones are refused",
    "R8": "key of {a} bytes is not UTF-8, utf8_keys requires it",
}

_SENTENCES = tuple(REASONS.values())
_REFUSED = list(REASONS).index("RECORDS_REFUSED")
_FIRST_RECORD_RULE = list(REASONS).index("RECORD_SCHEMA_ID")


def sentence(reason: int, record: int, a: int, b: int) -> str:
    """Return the reason as one line for people."""
    if reason == _REFUSED and a == 1:
        return "1 record was refused"
    text = _SENTENCES[reason].format(i=record, a=a, b=b, n=b + 1)
    return text + count_of_broken(a) if reason >= _FIRST_RECORD_RULE else text


def count_of_broken(count: int) -> str:
    """Return how many records break record rules, after the sentence about the first of them."""
    return "" if count == 1 else f"; {count} records break record rules"
