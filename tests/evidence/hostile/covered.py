"""List the native modules of each fuzz target: a test finds a module without a target."""

from __future__ import annotations

from typing import Final

__all__ = ["COVERED"]

_PROTOCOL: Final = (
    *("frame_memory", "frames", "primitives"),
    *(
        f"walkers.{name}"
        for name in (
            "addresses",
            "broker_requests",
            "fetch_tail",
            "positions",
            "produce",
            "produce_answer",
            "splice",
            "topic_ids",
            "views",
        )
    ),
)
_VALIDATION: Final = (
    *(
        "stages.append",
        "stages.arguments",
        "records.chunked",
        "records.compiled_rules",
        "convert.convert",
        "stages.stages",
        "stages.analyze",
        "records.legacy",
    ),
    "stages.assign_offsets",
    *(
        "records.record_fields",
        "records.records",
        "records.replay",
        "batches.result",
        "codecs.scratch",
        "batches.validator",
        "stages.verdict",
        "stages.batch_records",
    ),
)


def _core(*names: str) -> tuple[str, ...]:
    return tuple(f"batchval.core.{name}" for name in names)


_MUTATED: Final = (
    *_core(
        *_VALIDATION,
        "batches.batch",
        "convert.builder",
        "stages.carriers",
        "stages.claims",
        "batches.columns",
        "format.crc32c",
        "convert.down_conversion",
        "batches.fetched",
        "records.fields",
        "codecs.codec_streams",
        *("codecs.gzip", "batches.row_loops"),
    ),
    "batchval.segment.search_window",
    *_core(
        "batches.arrow",
        "batches.block",
        "batches.record_columns",
        "batches.native_validator",
        "codecs.snappy",
    ),
    *(f"batchval.protocol.{name}" for name in _PROTOCOL),
    "batchval.fetch.partition_chunks",
    "batchval.perf.histogram",
    "batchval.producer.murmur2",
)

COVERED: Final[dict[str, tuple[str, ...]]] = {
    "differential": _core(
        *_VALIDATION, "format.crc32c", "codecs.codec_streams", "codecs.gzip", "codecs.snappy"
    ),
    "claims": _core(
        "stages.carriers",
        "stages.claims",
        "batches.validator",
        "stages.stages",
        "batches.row_loops",
    ),
    "core_ranges": _core("batches.columns", "batches.row_loops", "stages.arguments"),
    "core_entry_points": (
        *_core(
            *(
                "batches.arrow",
                "batches.batch",
                "batches.block",
                "batches.columns",
                "records.fields",
                "batches.record_columns",
                "records.records",
            ),
        ),
        "batchval.segment.search_window",
    ),
    "providers": (*_core("codecs.codec_streams"), "batchval.compression.native_pointers"),
    "inflate": _core("codecs.gzip"),
    "snappy": _core("codecs.snappy"),
    "files": _core("batches.columns", "batches.row_loops"),
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
            "batches.arrow",
            "batches.batch",
            "batches.block",
            "convert.builder",
            "batches.columns",
            "records.fields",
            "batches.result",
            "batches.row_loops",
            "batches.validator",
        ),
        "batchval.fetch.partition_chunks",
        "batchval.perf.histogram",
        "batchval.protocol.frame_memory",
        "batchval.protocol.walkers.fetch_tail",
        "batchval.protocol.frames",
        "batchval.protocol.primitives",
        "batchval.protocol.walkers.produce",
    ),
    "connections": ("batchval.proxy.session.socket_transport", "batchval.protocol.frames"),
    "durations": ("batchval.proxy.watch.request_latency",),
    "fast_path": (
        "batchval.proxy.session.fast_path",
        "batchval.ledger.sender_trust",
        *_core("batches.native_validator"),
    ),
    "streams": tuple(
        f"batchval.protocol.{name}" for name in ("walkers.fetch_tail", "frame_memory", "frames")
    ),
    "verdicts": (
        "batchval.proxy.produce.verdicts",
        "batchval.protocol.walkers.produce_answer",
        "batchval.ledger.sender_trust",
    ),
    "old_produce": (
        *(
            "batchval.proxy.produce.verdicts",
            "batchval.protocol.walkers.produce",
            "batchval.protocol.walkers.produce_answer",
        ),
        *_core("convert.convert"),
    ),
    "fetch_answers": (
        "batchval.fetch.partition_chunks",
        "batchval.protocol.frames",
        *_core("batches.fetched"),
    ),
    "answers_to_producers": tuple(
        f"batchval.protocol.{name}" for name in ("frames", "primitives", "structs")
    ),
    "answers_to_consumers": ("batchval.fetch.partition_chunks", "batchval.protocol.primitives"),
    "answers_to_gates": ("batchval.protocol.frames", "batchval.protocol.walkers.topic_ids"),
    "answers_of_others": (),
    "received": (
        *(f"batchval.fetch.receive{name}" for name in ("", "_loop", "_memory", "_request", "r")),
        *_core("batches.fetched"),
    ),
    "old_versions": ("batchval.protocol.primitives",),
    "down_conversion": _core("convert.aborted", "convert.down_conversion", "convert.convert"),
    "builder": ("batchval.core.convert.builder", "batchval.producer.murmur2"),
    "histogram": ("batchval.perf.histogram",),
}
