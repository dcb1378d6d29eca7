"""Positions of Kafka's fields, and the numbers that the core and Python share. Those of rules,
which modules cimport from here, too, are in rule_numbers.pxd.

A batch of magic 2 (DefaultRecordBatch), big-endian:

    base_offset:8 batch_length:4 partition_leader_epoch:4 magic:1 crc:4 | attributes:2
    last_offset_delta:4 base_timestamp:8 max_timestamp:8 producer_id:8 producer_epoch:2
    base_sequence:4 records_count:4 records...

The crc is CRC-32C of all later bytes. A message of magic 0 or 1 (LegacyRecord) after its log
overhead:

    offset:8 size:4 | crc:4 magic:1 attributes:1 [timestamp:8 if magic 1] key_length:4 key
    value_length:4 value

Its crc is CRC-32 of all later bytes. A compressed message set is the value of such a message.

A record of magic 2 (DefaultRecord), lengths as zigzag varints:

    length attributes:1 timestamp_delta offset_delta key_length key value_length value
    headers_count (key_length key value_length value)*
"""

from batchval.core.format.rule_numbers cimport *

cdef enum:  # offsets in a batch of magic 2
    BASE_OFFSET = 0
    BATCH_LENGTH = 8
    PARTITION_LEADER_EPOCH = 12
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    BASE_SEQUENCE = 53
    RECORDS_COUNT = 57
    RECORDS = 61

# Offsets in a message of magic 0 or 1, from its offset field; key lengths stand at _V0 or _V1.
cdef enum:
    LOG_OVERHEAD = 12
    LEGACY_CRC = 12
    LEGACY_MAGIC = 16
    LEGACY_ATTRIBUTES = 17
    LEGACY_TIMESTAMP = 18
    LEGACY_KEY_V0 = 18
    LEGACY_KEY_V1 = 26
    LEGACY_MIN_SIZE = 14  # LegacyRecord.RECORD_OVERHEAD_V0: the smallest size field Kafka takes
    LEGACY_OVERHEAD_V0 = 26  # with log overhead, without key and value
    LEGACY_OVERHEAD_V1 = 34

cdef enum:  # attributes of a batch
    CODEC_MASK = 7
    LOG_APPEND_TIME_BIT = 8
    TRANSACTIONAL_BIT = 16
    CONTROL_BIT = 32
    DELETE_HORIZON_BIT = 64
    UNUSED_BITS = 0xFFC0  # for a client: bits 6 to 15

cdef enum:
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    PRODUCER = -1  # target codec: the batch's own

cdef enum:
    DEFAULT_LEVEL = -0x7FFFFFFF  # of a codec, where the policy names none; no codec has it

cdef enum:
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

cdef enum:  # of a batch or record that has none (RecordBatch)
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1

# Key and value of a transaction marker (EndTransactionMarker): version:2 type:2, and version:2
# coordinator_epoch:4.
cdef enum:
    MARKER_TYPE = 2
    MARKER_KEY_SIZE = 4
    MARKER_COORDINATOR_EPOCH = 2
    MARKER_VALUE_SIZE = 6
    MARKER_ABORT = 0
    MARKER_COMMIT = 1

cdef enum:  # batchval.types.AppendOrigin
    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3

cdef enum:
    PRODUCE_PROFILE = 0
    LOG_PROFILE = 1

cdef enum:  # ValidationResult.path
    PATH_UNKNOWN = 0
    PATH_CLAIMS = 1
    PATH_SHALLOW = 2
    PATH_FULL = 3
    PATH_REBUILT = 4

cdef enum:  # batchval.core.batches.result.FIGURES: where the figures of a batch at rest come from
    FIGURES_HEADER = 0
    FIGURES_RECORDS = 1
    FIGURES_CLAIMS = 2  # the sample did not draw it
    FIGURES_SAMPLE = 3  # the sample drew it: its records

cdef enum:  # ErrorCode.NONE; the codes of rules come from rule_numbers.pxd
    OK = 0

# Numbers of more than 31 bits have an enum of their own, here and elsewhere: in a mixed one, GCC 13
# and Clang 20 make all unsigned, and a comparison with a negative number is false.
cdef enum:
    MAX_OFFSET = 0x7FFFFFFFFFFFFFFF  # no log ends after it

cdef enum:
    MAX_ARRAY_LENGTH = 0x7FFFFFFD  # of a JVM, whatever its heap (batchval.kafka_versions)
