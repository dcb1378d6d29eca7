"""All that the gate cimports of the engine: what is not here may change without a look at proxy."""

from batchval.core.batches.native_validator cimport Accepted, accepted_by_claims, accepts
from batchval.core.batches.result cimport message_of_broken, message_of_error
from batchval.core.batches.validator cimport LogValidator
from batchval.core.codecs.scratch cimport (
    ERRORS_KEPT, UNLIMITED_WORK, WORK_WITH_GIL, RecordError, Scratch, begin_work,
    end_work, give_back,
)
from batchval.core.convert.convert cimport rebuild
from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be16, be32, put_be32
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport (
    ATTRIBUTES, BATCH_LENGTH, CODEC_MASK, CRC, EXTRA, INVALID_TIMESTAMP, LAST_EXTRA,
    LOG_OVERHEAD, MAGIC, MESSAGE_TOO_LARGE, NONE, NO_TIMESTAMP, PATH_CLAIMS, PRODUCER,
    REBUILT_BATCH_TOO_LARGE, RECORDS, RECORDS_COUNT, S8, S8_BIT, UNKNOWN_SERVER_ERROR, ZSTD,
)
from batchval.core.records.compiled_rules cimport asks_value_schema
from batchval.core.stages.analyze cimport validate_first_batch, validate_request
from batchval.core.stages.arguments cimport is_long, source_of
from batchval.core.stages.carriers cimport (
    attach_to_payload, carrier_size, claims_size, has_payload_claims, strip_payload,
)
from batchval.core.stages.claims_block cimport (
    CLAIMS_MAGIC, CLAIMS_TRUSTED, CRC_SIZE, IGNORE_CLAIMS, MAX_MADE_BLOCK_SIZE, NO_CLAIMS,
    TRUST_CLAIMS, VERIFY_CLAIMS, Claims, ClaimsCall, put_block, read_tag, true_claims,
)
from batchval.core.stages.stages cimport Call, fill_call, validate_row
from batchval.core.stages.verdict cimport (
    AppendContext, Policy, Verdict, borrow_for, breaks_record_rule, clear, conclude,
    has_record_errors, refuse,
)
