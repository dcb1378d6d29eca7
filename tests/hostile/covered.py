"""Which native modules each fuzz target is for: a module that no target names is not fuzzed
(tests/contract).
"""

from __future__ import annotations

from typing import Final

__all__ = ["COVERED"]

_PROTOCOL: Final = (
    *("addresses", "blocks", "fetch_tail", "frames", "primitives", "produce", "produce_answer"),
    *("splice", "topic_ids", "views", "walks"),
)
_VALIDATION: Final = (
    *("append", "arguments", "chunked", "compiled_rules", "convert", "door", "judge", "legacy"),
    "messages",
    *("record_fields", "records", "replay", "result", "scratch", "validator", "verdict", "walks"),
)


def _core(*names: str) -> tuple[str, ...]:
    return tuple(f"batchval.core.{name}" for name in names)


_MUTATED: Final = (
    *_core(
        *_VALIDATION,
        "batch",
        "builder",
        "carriers",
        "claims",
        "columns",
        "crc32c",
        "down_conversion",
        "fetched",
        "fields",
        "frames",
        *("gzip", "rows"),
    ),
    *_core("arrow", "block", "record_columns", "short", "snappy"),
    *(f"batchval.protocol.{name}" for name in _PROTOCOL),
    "batchval.fetch.pieces",
    "batchval.perf.histogram",
    "batchval.producer.murmur2",
)

COVERED: Final[dict[str, tuple[str, ...]]] = {
    "differential": _core(*_VALIDATION, "crc32c", "frames", "gzip", "snappy"),
    "claims": _core("carriers", "claims", "validator", "door", "rows"),
    "core_ranges": _core("columns", "rows", "arguments"),
    "core_doors": _core("arrow", "batch", "block", "columns", "fields", "record_columns", "records"),
    "providers": (*_core("frames"), "batchval.compression.blocks"),
    "inflate": _core("gzip"),
    "snappy": _core("snappy"),
    "files": _core("columns", "rows"),
    "wire": tuple(f"batchval.protocol.{name}" for name in _PROTOCOL),
    "mutated_by_thread": (*_MUTATED, "batchval.proxy.fast_path", "batchval.proxy.verdicts", "batchval.ledger.credit"),
    "mutated_by_process": _MUTATED,
    "freed_or_resized": (
        *_core("arrow", "batch", "block", "builder", "columns", "fields", "result", "rows", "validator"),
        "batchval.fetch.pieces",
        "batchval.perf.histogram",
        "batchval.protocol.blocks",
        "batchval.protocol.fetch_tail",
        "batchval.protocol.frames",
        "batchval.protocol.primitives",
        "batchval.protocol.produce",
    ),
    "durations": ("batchval.proxy.durations",),
    "fast_path": ("batchval.proxy.fast_path", "batchval.ledger.credit", *_core("short")),
    "streams": tuple(f"batchval.protocol.{name}" for name in ("blocks", "fetch_tail", "frames")),
    "verdicts": ("batchval.proxy.verdicts", "batchval.protocol.produce_answer", "batchval.ledger.credit"),
    "old_produce": (
        *("batchval.proxy.verdicts", "batchval.protocol.produce", "batchval.protocol.produce_answer"),
        *_core("convert"),
    ),
    "fetch_answers": ("batchval.fetch.pieces", "batchval.protocol.frames", *_core("fetched")),
    "received": (
        *(f"batchval.fetch.receive{name}" for name in ("", "_blocks", "_count", "_loop", "_memory", "_request", "r")),
        *_core("fetched"),
    ),
    "old_versions": ("batchval.protocol.primitives",),
    "down_conversion": _core("aborted", "down_conversion", "convert"),
    "builder": ("batchval.core.builder", "batchval.producer.murmur2"),
    "histogram": ("batchval.perf.histogram",),
}
