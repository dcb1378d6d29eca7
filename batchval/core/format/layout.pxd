"""Positions of Kafka's fields, and the numbers that the core and batchval.rules share.

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
    LEGACY_SMALLEST = 14  # LegacyRecord.RECORD_OVERHEAD_V0: the smallest size field Kafka takes
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

cdef enum:  # Kafka's error codes (batchval.errors.ErrorCode)
    UNKNOWN_SERVER_ERROR = -1
    OK = 0
    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87

cdef enum:  # batchval.rules.Rule.number
    BATCH_INCOMPLETE = 1
    BATCH_SIZE_TOO_SMALL = 2
    BATCH_SIZE_OVERFLOW = 3
    MAGIC_UNKNOWN = 4
    REQUEST_WITHOUT_BATCH = 5
    REQUEST_MAGIC_NOT_2 = 6
    REQUEST_ZSTD_TOO_OLD = 7
    REQUEST_MORE_THAN_ONE_BATCH = 8
    RAFT_LEADER_EPOCH_DIFFERS = 9
    BASE_OFFSET_NOT_ZERO = 10
    REPLICA_EPOCH_AHEAD = 11
    FIELDS_OUT_OF_BOUNDS = 12
    BATCH_TOO_LARGE = 13
    CRC_MISMATCH = 14
    CODEC_ID_UNKNOWN = 15
    OFFSETS_OUT_OF_ORDER = 16
    VALIDATOR_WITHOUT_BATCH = 18
    VALIDATOR_MORE_THAN_ONE_BATCH = 19
    BATCH_MAGIC_DIFFERS = 21
    OFFSET_RANGE_EMPTY = 22
    RECORDS_COUNT_NOT_POSITIVE = 23
    RECORDS_COUNT_UNLIKE_OFFSETS = 24
    CONTROL_BATCH_BY_CLIENT = 25
    BASE_SEQUENCE_NEGATIVE = 26
    TRANSACTION_BEFORE_MAGIC_2 = 27
    PRODUCER_ID_BEFORE_MAGIC_2 = 28
    RECORD_MALFORMED = 29
    WRAPPER_MALFORMED = 30
    INNER_SIZE_TOO_SMALL = 31
    INNER_CODEC_SET = 32
    RECORD_MAGIC_DIFFERS = 33
    INNER_CRC_MISMATCH = 34
    KEY_MISSING = 35
    TIMESTAMP_OUT_OF_RANGE = 36
    TIMESTAMP_TYPE_BY_PRODUCER = 37
    RECORD_ERRORS = 38
    REBUILD_IMPOSSIBLE = 39
    REBUILT_BATCH_TOO_LARGE = 40
    OFFSET_BELOW_LOG_END = 41
    LEADER_EPOCH_INVALID = 42
    PRODUCER_EPOCH_TOO_LOW = 43
    TRANSACTION_MARKER_MALFORMED = 44
    COORDINATOR_EPOCH_TOO_LOW = 45
    TRANSACTION_NOT_ENDED = 46
    OFFSETS_OUTSIDE_SEGMENT = 47
    EXTRA = 50  # S1 is 51
    S1 = 51
    S2 = 52
    S3 = 53
    S4 = 54
    S5 = 55
    S6 = 56
    S7 = 57
    S8 = 58
    S9 = 59
    S10 = 60
    LAST_EXTRA = S10 - EXTRA
    FINDING = 70  # L1 is 71
    L1 = 71
    L2 = 72
    L3 = 73
    L4 = 74
    L5 = 75
    L6 = 76
    L7 = 77
    L8 = 78
    L9 = 79
    L10 = 80
    L11 = 81
    L12 = 82
    L13 = 83
    L14 = 84
    L15 = 85
    L16 = 86
    L17 = 87
    RECORD_RULE = 90  # R1 is 91
    R1 = 91
    R2 = 92
    R3 = 93
    R4 = 94
    R5 = 95
    R6 = 96
    R7 = 97
    R8 = 98

# Numbers of more than 31 bits have an enum of their own, here and elsewhere: in a mixed one, GCC 13
# and Clang 20 make all unsigned, and a comparison with a negative number is false.
cdef enum:
    LARGEST_OFFSET = 0x7FFFFFFFFFFFFFFF  # no log ends after it

cdef enum:
    LONGEST_ARRAY = 0x7FFFFFFD  # of a JVM, whatever its heap (batchval.kafka_versions)

cdef enum:  # Verdict.found and reports, AppendContext.refuse: one bit for each extra
    S1_BIT = 1 << 1
    S2_BIT = 1 << 2
    S3_BIT = 1 << 3
    S4_BIT = 1 << 4
    S5_BIT = 1 << 5
    S6_BIT = 1 << 6
    S7_BIT = 1 << 7
    S8_BIT = 1 << 8
    S9_BIT = 1 << 9
    S10_BIT = 1 << 10
