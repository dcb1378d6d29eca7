"""The numbers of rules and of their error codes, and the bits of extras.

Written by ``python tools/generate_rules.py`` from batchval/rule_texts.py: do not edit it by hand.
"""

from libc.stdint cimport int16_t

cdef enum:  # batchval.errors.ErrorCode
    UNKNOWN_SERVER_ERROR = -1
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
    VALID_BYTES_NEGATIVE = 17
    VALIDATOR_WITHOUT_BATCH = 18
    VALIDATOR_MORE_THAN_ONE_BATCH = 19
    ZSTD_BEFORE_IBP_2_1 = 20
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
    LAST_EXTRA = S10 - EXTRA

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
    # extras that no records under honest claims meet
    AGAINST_CLAIMS = S3_BIT | S4_BIT | S5_BIT | S7_BIT | S10_BIT


cdef inline int16_t code_of_extra(int rule) noexcept nogil:
    if rule == S6:
        return UNSUPPORTED_COMPRESSION_TYPE
    if rule == S10:
        return INVALID_TIMESTAMP
    return INVALID_RECORD
