"""batchval decides whether a Kafka record batch may enter a log.

>>> from batchval import LogValidator
>>> result = LogValidator().check(b"", now_ms=1_700_000_000_000)
>>> result.ok, result.error_code.name, result.rule.slug
(False, 'INVALID_RECORD', 'request-without-batch')

A name's module is loaded when the name is first used: the core imports numpy, which takes three
quarters of the time, and a program that only uses ``batchval.ErrorCode`` need not wait for it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer than the rest of this module

if TYPE_CHECKING:
    from batchval.core.batches.batch import DecodedRecord, RecordBatch, batches
    from batchval.core.batches.columns import BatchColumns, BatchRow, CheckedRow, scan_batches
    from batchval.core.batches.record_columns import RecordColumns, record_columns
    from batchval.core.batches.result import RecordValidationStats, RejectedBatch, ValidationResult
    from batchval.core.batches.validator import LogValidator
    from batchval.core.convert.down_conversion import DownConverted, NotConverted, down_convert
    from batchval.core.convert.record_batch_builder import RecordBatchBuilder
    from batchval.core.stages.claims import BatchClaims
    from batchval.errors import BatchvalError, ErrorCode, NotABatch
    from batchval.ledger import ClaimsLedger
    from batchval.policy import ClaimsPolicy, TopicPolicy
    from batchval.record_rules import RecordRules, SchemaIds
    from batchval.rules import Rule
    from batchval.types import AppendOrigin, CompressionType, TimestampType

__version__ = "0.1.0"

__all__ = [
    "AppendOrigin",
    "BatchClaims",
    "BatchColumns",
    "BatchRow",
    "BatchvalError",
    "CheckedRow",
    "ClaimsLedger",
    "ClaimsPolicy",
    "CompressionType",
    "DecodedRecord",
    "DownConverted",
    "ErrorCode",
    "LogValidator",
    "NotABatch",
    "NotConverted",
    "RecordBatch",
    "RecordBatchBuilder",
    "RecordColumns",
    "RecordRules",
    "RecordValidationStats",
    "RejectedBatch",
    "Rule",
    "SchemaIds",
    "TimestampType",
    "TopicPolicy",
    "ValidationResult",
    "__version__",
    "batches",
    "down_convert",
    "record_columns",
    "scan_batches",
]

_HOMES = {
    "batchval.core.batches.batch": ("DecodedRecord", "RecordBatch", "batches"),
    "batchval.core.stages.claims": ("BatchClaims",),
    "batchval.core.batches.columns": ("BatchColumns", "BatchRow", "CheckedRow", "scan_batches"),
    "batchval.core.convert.down_conversion": ("DownConverted", "NotConverted", "down_convert"),
    "batchval.core.batches.record_columns": ("RecordColumns", "record_columns"),
    "batchval.core.convert.record_batch_builder": ("RecordBatchBuilder",),
    "batchval.core.batches.result": ("RecordValidationStats", "RejectedBatch", "ValidationResult"),
    "batchval.core.batches.validator": ("LogValidator",),
    "batchval.errors": ("BatchvalError", "ErrorCode", "NotABatch"),
    "batchval.ledger": ("ClaimsLedger",),
    "batchval.policy": ("ClaimsPolicy", "TopicPolicy"),
    "batchval.record_rules": ("RecordRules", "SchemaIds"),
    "batchval.rules": ("Rule",),
    "batchval.types": ("AppendOrigin", "CompressionType", "TimestampType"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        found = globals()[name] = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("batchval.core."):
            raise
        raise ModuleNotFoundError(
            f"the module {error.name} is not built in {__path__[0]}: run make build there, or "
            "start Python in another folder, if batchval is installed",
            name=error.name,
        ) from None
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
