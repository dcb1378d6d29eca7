"""Cases of ``batchval conformance``: JSON lines with Apache Kafka's own answers.

Reads cases as JSON lines (``.jsonl``, ``.jsonl.gz``) and folders of them. A line holds ``id``,
``cfg``, ``batch_hex`` and ``expect``, Kafka's own answer to four stages that are asked
independently. ``kafka_version`` names the Kafka that answered; without it that is 4.4. Golden lines
also hold ``profile`` and, asked where they stand: ``expect_strict``, strict mode's answer;
``rule``, what the line is there to show (id, stage, broken); ``shows``, the batch loop's
``valid_bytes``; ``expect_log``, what the log profile finds in a segment of these bytes, with
``index_hex`` as its .index file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION
from batchval.policy import TopicPolicy
from batchval.segment.foreign import START_SIZE, json_of_line, not_json_reason
from batchval.types import AppendOrigin, CompressionType

__all__ = ["STAGES", "Case", "NotACase", "policy_of", "read_cases", "strict_settings"]

Case = dict[str, Any]

STAGES = ("request", "analyze", "validate", "append")


class NotACase(Exception):
    """A line, or a file, that does not hold a case. The text names it."""


def read_cases(
    paths: list[Path], kafka_version: str = DEFAULT_KAFKA_VERSION
) -> Iterator[Case | NotACase]:
    """Yield every case of the files, and of the .jsonl files below the folders, in order of their
    names.

    ``kafka_version`` is that of cases that name none.
    A line that is not a case is yielded as a NotACase: one bad line does not hide the others. A
    file whose first line is not JSON, or is a case of batchval-fixtures, is not read further.
    """
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz")))
            if not files:
                yield NotACase(f"{path}: no .jsonl files in this folder")
        else:
            files = [path]
        for file in files:
            try:
                yield from _cases(file, kafka_version)
            except (gzip.BadGzipFile, zlib.error):
                yield NotACase(f"{file}: not gzip data, or damaged")
            except EOFError:
                yield NotACase(f"{file}: the gzip data is cut off")
            except OSError as error:
                yield NotACase(f"{file}: {error.strerror or error}")


def _cases(path: Path, kafka_version: str) -> Iterator[Case | NotACase]:
    if path.exists() and not path.is_file():
        yield NotACase(f"{path}: not a regular file")  # opening a pipe would wait for ever
        return
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as lines:
        foreign = not_json_reason(PurePath(path.name.removesuffix(".gz")), lines.read(START_SIZE))
        if foreign is not None:
            yield NotACase(f"{path}: {foreign}")
            return
        lines.seek(0)
        filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        for place, (number, line) in enumerate(filled):
            try:
                document = json_of_line(line)
            except ValueError as error:
                yield NotACase(f"{path}:{number}: not a case: {error}")
                if place:
                    continue
                return  # the file holds something else
            if isinstance(document, dict) and {"schema", "batch"} <= document.keys():
                yield NotACase(f"{path}: these are cases of batchval-fixtures: use --exec CMD")
                return
            try:
                yield _case(document, f"{path.name}:{number}", kafka_version)
            except ValueError as error:
                yield NotACase(f"{path}:{number}: not a case: {error}")


_LEVELLED = ("gzip", "lz4", "zstd")
_LEVELS = tuple(f"{codec}_level" for codec in _LEVELLED)
_NUMBERS = (
    "now",
    "first_offset",
    "leader_epoch",
    "produce_version",
    "to_magic",
    "before_max_ms",
    "after_max_ms",
)
_CFG: Mapping[str, type | tuple[type, ...]] = (
    dict.fromkeys(
        (*_NUMBERS, *_LEVELS, "max_message_bytes", "max_record_body", "max_decompressed_bytes"), int
    )
    | dict.fromkeys(("origin", "source", "target", "ts_type"), str)
    | {"compact": bool, "extras": dict}
)
_ALLOWED: Mapping[str, Collection[object]] = {
    "origin": AppendOrigin.__members__,
    "source": ("auto", *(codec.kafka_name for codec in CompressionType)),
    "to_magic": range(3),
}
#: values that a cfg need not have; those of a topic's policy are in policy_of
_DEFAULTS: Case = {
    "now": 0,
    "first_offset": 0,
    "leader_epoch": 0,
    "produce_version": 9,
    "to_magic": 2,
    "origin": "CLIENT",
    "source": "auto",
}
_INT_RANGES = {"leader_epoch": 31, "produce_version": 15, "to_magic": 2}  # bits


def _case(case: object, default_id: str, kafka_version: str) -> Case:
    """Return the validated case of a line. Raises ValueError with what is wrong."""
    if not isinstance(case, dict):
        raise ValueError("expected an object")
    if not isinstance(case.get("batch_hex"), str):
        raise ValueError("batch_hex is missing")
    case["batch"] = _bytes_of(case, "batch_hex")
    cfg = case.get("cfg", {})
    if not isinstance(cfg, dict):
        raise ValueError("invalid cfg: expected an object")
    cfg = case["cfg"] = _DEFAULTS | cfg
    for name, kind in _CFG.items():
        if name in cfg and (
            not isinstance(cfg[name], kind) or (kind is int and isinstance(cfg[name], bool))
        ):
            raise ValueError(f"cfg.{name} is {cfg[name]!r}")
        bits = _INT_RANGES.get(name, 63)
        if kind is int and not -(1 << bits) <= cfg.get(name, 0) < 1 << bits:
            raise ValueError(f"cfg.{name} is {cfg[name]!r}")
    expect = case.get("expect")
    if not isinstance(expect, dict) or not any(
        isinstance(expect.get(stage), dict) for stage in STAGES
    ):
        raise ValueError(
            "expect is missing: expected an object with a stage request, analyze, "
            "validate or append"
        )
    for name in (*STAGES, "strict"):
        answer = case.get("expect_strict", {}) if name == "strict" else expect.get(name, {})
        if not isinstance(answer, dict):
            raise ValueError(f"invalid expect.{name}: expected an object")
    if case.get("profile", "produce") not in ("produce", "log"):
        raise ValueError(f"profile is {case['profile']!r}")
    _golden_case(case)
    case["id"] = str(case.get("id", default_id))
    case.setdefault("kafka_version", kafka_version)
    try:  # the remaining words are the policy's and the validator's to know
        LogValidator(policy_of(cfg), kafka_version=case["kafka_version"], **strict_settings(cfg))
        for name, allowed in _ALLOWED.items():
            if cfg[name] not in allowed:
                raise ValueError(f"cfg.{name} is {cfg[name]!r}")
    except BatchvalError as error:
        raise ValueError(str(error)) from None
    return case


def _bytes_of(case: Case, name: str) -> bytes:
    """Return the bytes of a field in hex. Raises ValueError with what is wrong."""
    try:
        return bytes.fromhex(case[name])
    except ValueError:
        raise ValueError(f"{name} is not hexadecimal") from None


def _golden_case(case: Case) -> None:
    """Validate the fields that only golden lines have. Raises ValueError with what is wrong."""
    for name in ("rule", "shows"):
        if not isinstance(case.get(name, {}), dict):
            raise ValueError(f"invalid {name}: expected an object")
    if "rule" in case and case["rule"].get("stage") not in (*STAGES, "log"):
        raise ValueError(f"rule.stage is {case['rule'].get('stage')!r}")
    findings = case.get("expect_log", [])
    if not isinstance(findings, list) or not all(isinstance(finding, dict) for finding in findings):
        raise ValueError("invalid expect_log: expected a list of findings")
    if not isinstance(case.setdefault("index_hex", ""), str):
        raise ValueError("invalid index_hex: expected a string")
    case["index"] = _bytes_of(case, "index_hex")


def strict_settings(cfg: dict[str, Any]) -> dict[str, Any]:
    """Return the validator's own settings, which only golden lines have."""
    return {name: cfg[name] for name in ("extras", "max_decompressed_bytes") if name in cfg}


def policy_of(cfg: dict[str, Any]) -> TopicPolicy:
    """Return the topic's part of a case's configuration, with the defaults of the corpus."""
    return TopicPolicy(
        message_timestamp_before_max_ms=cfg.get("before_max_ms", 2**63 - 1),
        message_timestamp_after_max_ms=cfg.get("after_max_ms", 3_600_000),
        message_timestamp_type=cfg.get("ts_type", "CreateTime"),
        max_message_bytes=cfg.get("max_message_bytes", 1_048_588),
        max_decompressed_message_bytes=cfg.get("max_record_body", 2_147_483_639),
        compression_type=cfg.get("target", "producer"),
        cleanup_policy="compact" if cfg.get("compact", False) else "delete",
        **{
            f"compression_{codec}_level": cfg[f"{codec}_level"]
            for codec in _LEVELLED
            if f"{codec}_level" in cfg
        },
    )
