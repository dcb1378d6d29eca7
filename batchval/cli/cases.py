"""``batchval conformance``: are our answers Apache Kafka's?

Reads cases as JSON lines (``.jsonl``, ``.jsonl.gz``) and folders of them. A line holds ``id``, ``cfg``, ``batch_hex``
and ``expect``, Kafka's own answer to three independent stages; golden lines also ``profile`` and, where strict mode
has an answer of its own, ``expect_strict``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from batchval.core.batch import batches
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy

__all__ = ["Disagreement", "compare", "read_cases"]

Case = dict[str, Any]
Answer = dict[str, Any]

#: compared on success of the validate stage, beside the bytes
VALIDATED = ("next_offset", "max_timestamp", "size_maybe_changed", "in_place", "converted")


class Disagreement(NamedTuple):
    """One way in which one case differs."""

    case_id: str
    stage: str
    what: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.case_id} {self.stage}: {self.what} expected {self.expected!r}, got {self.got!r}"


def read_cases(paths: list[Path]) -> Iterator[Case]:
    """Every case of the files, and of the .jsonl files below the folders, in order of their names."""
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz")))
            if not files:
                raise BatchvalError(f"{path}: no .jsonl files in this folder")
        else:
            files = [path]
        for file in files:
            yield from _lines(file)


def _lines(path: Path) -> Iterator[Case]:
    unpack = gzip.open if path.name.endswith(".gz") else open
    with unpack(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                case = json.loads(line)
                case["batch"] = bytes.fromhex(case["batch_hex"])
            except (ValueError, KeyError, TypeError) as error:
                raise BatchvalError(f"{path}:{number}: not a case: {error}") from None
            if not isinstance(case.get("expect"), dict) or not isinstance(case.get("cfg", {}), dict):
                raise BatchvalError(f"{path}:{number}: not a case: no expect or cfg")
            case.setdefault("id", f"{path.name}:{number}")
            yield case


def policy_of(cfg: dict[str, Any]) -> TopicPolicy:
    """The topic's part of a case's configuration; defaults as the corpus has them."""
    return TopicPolicy(
        message_timestamp_before_max_ms=cfg.get("before_max_ms", 2**63 - 1),
        message_timestamp_after_max_ms=cfg.get("after_max_ms", 3_600_000),
        message_timestamp_type=cfg.get("ts_type", "CreateTime"),
        max_message_bytes=cfg.get("max_message_bytes", 1_048_588),
        max_decompressed_message_bytes=cfg.get("max_record_body", 2_147_483_639),
        compression_type=cfg.get("target", "producer"),
        cleanup_policy="compact" if cfg.get("compact", False) else "delete",
    )


def logical_sha256(records: bytes) -> str:
    """sha256 over offset, timestamp, key, value and headers of every record: what a recompressed batch says."""
    digest = hashlib.sha256()

    def blob(value: bytes | memoryview | None) -> None:
        digest.update(struct.pack(">i", -1 if value is None else len(value)))
        if value is not None:
            digest.update(value)

    for batch in batches(records):
        for record in batch.records(max_decompressed_bytes=1 << 40):
            digest.update(struct.pack(">qq", record.offset, record.timestamp))
            blob(record.key)
            blob(record.value)
            digest.update(struct.pack(">i", len(record.headers)))
            for key, value in record.headers:
                blob(key.encode("utf-8"))
                blob(value)
    return digest.hexdigest()


def _stage(result: Any) -> Answer:
    if result.ok:
        return {"ok": True}
    answer: Answer = {"code": int(result.error_code)}
    errors = [index for index, _ in result.record_errors]
    if errors:
        answer["record_errors"] = errors
    return answer


def kafka_answers(case: Case) -> dict[str, Answer]:
    """Our answers to the three stages, in kafka mode."""
    cfg = case.get("cfg", {})
    batch: bytes = case["batch"]
    validator = LogValidator(policy_of(cfg), mode="kafka")
    origin = cfg.get("origin", "CLIENT")
    leader_epoch = cfg.get("leader_epoch", 0)
    answers = {"request": _stage(validator.check_request(batch, produce_version=cfg.get("produce_version", 9)))}
    analyzed = validator.analyze(batch, origin=origin, leader_epoch=leader_epoch)
    answers["analyze"] = _stage(analyzed)
    source = cfg.get("source", "auto")
    if source == "auto" and not analyzed.ok:
        answers["validate"] = {"skipped": True}
        return answers
    # the broker trims what stands behind the last whole batch
    trimmed = batch[: analyzed.valid_bytes] if 0 < analyzed.valid_bytes < len(batch) else batch
    result = validator.validate_messages_and_assign_offsets(
        trimmed,
        now_ms=cfg.get("now", 0),
        source=analyzed.source.kafka_name if source == "auto" else source,
        first_offset=cfg.get("first_offset", 0),
        leader_epoch=leader_epoch,
        origin=origin,
        to_magic=cfg.get("to_magic", 2),
    )
    answers["validate"] = _stage(result)
    if result.ok:
        answers["validate"] |= {name: getattr(result, name) for name in VALIDATED}
        answers["validate"]["output"] = result.output
        answers["validate"]["recompressed"] = result.size_maybe_changed and any(
            b.compression_type for b in batches(result.output)
        )
    return answers


def _compare_stage(case_id: str, stage: str, expected: Answer, got: Answer) -> Iterator[Disagreement]:
    if bool(expected.get("skipped")) != bool(got.get("skipped")):
        yield Disagreement(case_id, stage, "skipped", expected.get("skipped", False), got.get("skipped", False))
        return
    if expected.get("skipped"):
        return
    if bool(expected.get("ok")) != bool(got.get("ok")) or expected.get("code", 0) != got.get("code", 0):
        yield Disagreement(case_id, stage, "code", expected.get("code", 0), got.get("code", 0))
        return
    if expected.get("record_errors", []) != got.get("record_errors", []):
        yield Disagreement(
            case_id, stage, "record_errors", expected.get("record_errors", []), got.get("record_errors", [])
        )
    if stage != "validate" or not expected.get("ok"):
        return
    for name in VALIDATED:
        if name in expected and expected[name] != got[name]:
            yield Disagreement(case_id, stage, name, expected[name], got[name])
    if got["recompressed"]:
        digest = logical_sha256(got["output"])
        if expected.get("out_logical_sha256") != digest:
            yield Disagreement(case_id, stage, "out_logical_sha256", expected.get("out_logical_sha256"), digest)
    else:
        digest = hashlib.sha256(got["output"]).hexdigest()
        if expected.get("out_sha256") != digest:
            yield Disagreement(case_id, stage, "out_sha256", expected.get("out_sha256"), digest)


def compare_kafka(case: Case) -> Iterator[Disagreement]:
    """Kafka mode against Kafka's own answers."""
    answers = kafka_answers(case)
    for stage in ("request", "analyze", "validate"):
        if stage in case["expect"]:
            yield from _compare_stage(case["id"], stage, case["expect"][stage], answers[stage])


def compare_strict(case: Case) -> Iterator[Disagreement]:
    """Strict mode against the line's own expectation."""
    cfg, expected = case.get("cfg", {}), case["expect_strict"]
    settings = {"extras": cfg["extras"]} if "extras" in cfg else {}
    if "max_decompressed_bytes" in cfg:
        settings["max_decompressed_bytes"] = cfg["max_decompressed_bytes"]
    validator = LogValidator(policy_of(cfg), mode="strict", profile=case.get("profile", "produce"), **settings)
    result = validator.check(
        case["batch"],
        now_ms=cfg.get("now", 0),
        origin=cfg.get("origin", "CLIENT"),
        produce_version=cfg.get("produce_version", 9),
        leader_epoch=cfg.get("leader_epoch", 0),
        to_magic=cfg.get("to_magic", 2),
    )
    got = {
        "ok": result.ok,
        "code": int(result.error_code),
        "rule": result.rule.id if result.rule else None,
        "reports": [rule.id for rule in result.reports],
    }
    for name, value in expected.items():
        if name in got and got[name] != value:
            yield Disagreement(case["id"], "strict", name, value, got[name])


def compare(case: Case) -> list[Disagreement]:
    """All ways in which our answers to a case differ from what it expects; empty: they agree."""
    found = list(compare_kafka(case))
    if "expect_strict" in case:
        found += compare_strict(case)
    return found
