"""List the native modules of each fuzz target: tests/contract finds a module without a target."""

from __future__ import annotations

from typing import Final

__all__ = ["COVERED"]

_PROTOCOL: Final = (
    *(
        "addresses",
        "broker_requests",
        "fetch_tail",
        "frame_memory",
        "frames",
        "primitives",
        "produce",
        "produce_answer",
    ),
    *("splice", "topic_ids", "positions", "views"),
)
_VALIDATION: Final = (
    *("append", "arguments", "chunked", "compiled_rules", "convert", "stages", "analyze", "legacy"),
    "assign_offsets",
    *(
        "record_fields",
        "records",
        "replay",
        "result",
        "scratch",
        "validator",
        "verdict",
        "batch_records",
    ),
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
        "codec_streams",
        *("gzip", "row_loops", "search_window"),
    ),
    *_core("arrow", "block", "record_columns", "native_validator", "snappy"),
    *(f"batchval.protocol.{name}" for name in _PROTOCOL),
    "batchval.fetch.pieces",
    "batchval.perf.histogram",
    "batchval.producer.murmur2",
)

COVERED: Final[dict[str, tuple[str, ...]]] = {
    "differential": _core(*_VALIDATION, "crc32c", "codec_streams", "gzip", "snappy"),
    "claims": _core("carriers", "claims", "validator", "stages", "row_loops"),
    "core_ranges": _core("columns", "row_loops", "arguments"),
    "core_entry_points": _core(
        *("arrow", "batch", "block", "columns", "fields", "record_columns", "records"),
        "search_window",
    ),
    "providers": (*_core("codec_streams"), "batchval.compression.native_pointers"),
    "inflate": _core("gzip"),
    "snappy": _core("snappy"),
    "files": _core("columns", "row_loops"),
    "wire": tuple(f"batchval.protocol.{name}" for name in _PROTOCOL),
    "mutated_by_thread": (
        *_MUTATED,
        "batchval.proxy.session.fast_path",
        "batchval.proxy.produce.verdicts",
        "batchval.ledger.sender_trust",
    ),
    "mutated_by_process": _MUTATED,
    "freed_or_resized": (
        *_core(
            "arrow",
            "batch",
            "block",
            "builder",
            "columns",
            "fields",
            "result",
            "row_loops",
            "validator",
        ),
        "batchval.fetch.pieces",
        "batchval.perf.histogram",
        "batchval.protocol.frame_memory",
        "batchval.protocol.fetch_tail",
        "batchval.protocol.frames",
        "batchval.protocol.primitives",
        "batchval.protocol.produce",
    ),
    "durations": ("batchval.proxy.watch.durations",),
    "fast_path": (
        "batchval.proxy.session.fast_path",
        "batchval.ledger.sender_trust",
        *_core("native_validator"),
    ),
    "streams": tuple(
        f"batchval.protocol.{name}" for name in ("fetch_tail", "frame_memory", "frames")
    ),
    "verdicts": (
        "batchval.proxy.produce.verdicts",
        "batchval.protocol.produce_answer",
        "batchval.ledger.sender_trust",
    ),
    "old_produce": (
        *(
            "batchval.proxy.produce.verdicts",
            "batchval.protocol.produce",
            "batchval.protocol.produce_answer",
        ),
        *_core("convert"),
    ),
    "fetch_answers": ("batchval.fetch.pieces", "batchval.protocol.frames", *_core("fetched")),
    "answers_to_producers": ("batchval.protocol.frames", "batchval.protocol.primitives"),
    "answers_to_consumers": ("batchval.fetch.pieces", "batchval.protocol.primitives"),
    "answers_to_gates": ("batchval.protocol.frames", "batchval.protocol.topic_ids"),
    "answers_of_others": (),
    "received": (
        *(
            f"batchval.fetch.receive{name}"
            for name in ("", "_blocks", "_count", "_loop", "_memory", "_request", "r")
        ),
        *_core("fetched"),
    ),
    "old_versions": ("batchval.protocol.primitives",),
    "down_conversion": _core("aborted", "down_conversion", "convert"),
    "builder": ("batchval.core.builder", "batchval.producer.murmur2"),
    "histogram": ("batchval.perf.histogram",),
}
