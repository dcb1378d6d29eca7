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
import hashlib
import struct
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from batchval.core.batch import batches
from batchval.core.result import ValidationResult
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION
from batchval.policy import TopicPolicy
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.foreign import START_SIZE, json_of_line, not_json_reason
from batchval.types import AppendOrigin, CompressionType

__all__ = ["Disagreement", "NotACase", "compare", "kafka_refuses", "read_cases", "strict_results"]

Case = dict[str, Any]
Answer = dict[str, Any]

STAGES = ("request", "analyze", "validate", "append")
#: compared with the bytes if the validate stage succeeds
VALIDATED = ("next_offset", "max_timestamp", "size_maybe_changed", "in_place", "converted")
#: compared on success of the append stage, in addition to the bytes
APPENDED = ("next_offset",)
#: what the bytes of a stage are called
BYTES = {"validate": "out", "append": "stored"}


class Disagreement(NamedTuple):
    """A difference between a case and an answer."""

    case_id: str
    stage: str
    what: str
    expected: object
    got: object

    def __str__(self) -> str:
        return (
            f"{self.case_id} {self.stage}: {self.what} expected {self.expected!r}, got {self.got!r}"
        )


class NotACase(Exception):
    """A line, or a file, that does not hold a case. The text names it."""


def read_cases(
    paths: list[Path], kafka_version: str = DEFAULT_KAFKA_VERSION
) -> Iterator[Case | NotACase]:
    """Yield every case of the files, and of the .jsonl files below the folders, in order of their
    names.

    ``kafka_version`` is that of cases that name none.
    A line that is not a case is yielded as a NotACase: one bad line does not hide the others.
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
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield _case(json_of_line(line), f"{path.name}:{number}", kafka_version)
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
_INT_RANGES = {"leader_epoch": 31, "produce_version": 15, "to_magic": 2}  # bits


def _case(case: object, default_id: str, kafka_version: str) -> Case:
    """Return the validated case of a line. Raises ValueError with what is wrong."""
    if not isinstance(case, dict):
        raise ValueError("expected an object")
    if not isinstance(case.get("batch_hex"), str):
        raise ValueError("batch_hex is missing")
    case["batch"] = _bytes_of(case, "batch_hex")
    cfg = case.setdefault("cfg", {})
    if not isinstance(cfg, dict):
        raise ValueError("invalid cfg: expected an object")
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
        LogValidator(policy_of(cfg), **strict_settings(cfg), **version_of(case))
        if cfg.get("origin", "CLIENT") not in AppendOrigin.__members__:
            raise ValueError(f"cfg.origin is {cfg['origin']!r}")
        if cfg.get("source", "auto") not in (
            "auto",
            *(codec.kafka_name for codec in CompressionType),
        ):
            raise ValueError(f"cfg.source is {cfg['source']!r}")
        if not 0 <= cfg.get("to_magic", 2) <= 2:
            raise ValueError(f"cfg.to_magic is {cfg['to_magic']!r}")
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


def version_of(case: Case) -> dict[str, Any]:
    """Return LogValidator's ``kafka_version``: the version of the classes that answered the
    case.
    """
    return {"kafka_version": case["kafka_version"]}


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


def logical_sha256(records: bytes) -> str:
    """Return the sha256 of offset, timestamp, key, value and headers of every record: the contents
    of a recompressed batch.
    """
    digest = hashlib.sha256()

    def blob(value: bytes | None) -> None:
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
        answer["record_errors_count"] = result.record_errors_count
    return answer


def kafka_answers(case: Case) -> dict[str, Answer]:
    """Return our answers to the four stages in kafka mode."""
    cfg = case.get("cfg", {})
    batch: bytes = case["batch"]
    validator = LogValidator(policy_of(cfg), mode="kafka", **version_of(case))
    origin = cfg.get("origin", "CLIENT")
    leader_epoch = cfg.get("leader_epoch", 0)
    answers = {
        "request": _stage(
            validator.check_request(batch, produce_version=cfg.get("produce_version", 9))
        )
    }
    answers["append"] = _appended(validator.validate(batch, **_append_context(cfg)))
    analyzed = validator.analyze(batch, origin=origin, leader_epoch=leader_epoch)
    answers["analyze"] = _stage(analyzed)
    source = cfg.get("source", "auto")
    if source == "auto" and not analyzed.ok:
        answers["validate"] = {"skipped": True}
        return answers
    # the broker trims the bytes after the last complete batch
    trimmed = (
        batch[: analyzed.valid_bytes]
        if analyzed.ok and 0 < analyzed.valid_bytes < len(batch)
        else batch
    )
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
    if result.output is not None:
        answers["validate"] |= {name: getattr(result, name) for name in VALIDATED}
        answers["validate"]["output"] = result.output
        answers["validate"]["recompressed"] = _recompressed(result)
    return answers


def _recompressed(result: Any) -> bool:
    """Return whether a compression library wrote the bytes, so that only their contents can be
    compared.
    """
    return result.size_maybe_changed and any(b.compression_type for b in batches(result.output))


def _appended(result: Any) -> Answer:
    """Return the answer to a whole append: the log's end offset and the stored bytes."""
    answer = _stage(result)
    if result.ok:
        answer["next_offset"] = result.next_offset
        answer["output"] = result.output
        answer["recompressed"] = _recompressed(result)
    return answer


def _compare_stage(
    case_id: str, stage: str, expected: Answer, got: Answer
) -> Iterator[Disagreement]:
    if bool(expected.get("skipped")) != bool(got.get("skipped")):
        yield Disagreement(
            case_id, stage, "skipped", expected.get("skipped", False), got.get("skipped", False)
        )
        return
    if expected.get("skipped"):
        return
    if bool(expected.get("ok")) != bool(got.get("ok")) or expected.get("code", 0) != got.get(
        "code", 0
    ):
        yield Disagreement(case_id, stage, "code", expected.get("code", 0), got.get("code", 0))
        return
    theirs, ours = expected.get("record_errors", []), got.get("record_errors", [])
    # Kafka lists every record error; the core keeps the first ones and counts the rest
    if theirs[: len(ours)] != ours or len(theirs) != got.get("record_errors_count", len(ours)):
        yield Disagreement(case_id, stage, "record_errors", theirs, ours)
    if stage not in BYTES or not expected.get("ok"):
        return
    for name in VALIDATED if stage == "validate" else APPENDED:
        if name in expected and expected[name] != got[name]:
            yield Disagreement(case_id, stage, name, expected[name], got[name])
    name = f"{BYTES[stage]}_logical_sha256" if got["recompressed"] else f"{BYTES[stage]}_sha256"
    digest = (
        logical_sha256(got["output"])
        if got["recompressed"]
        else hashlib.sha256(got["output"]).hexdigest()
    )
    if expected.get(name) != digest:
        yield Disagreement(case_id, stage, name, expected.get(name), digest)


def compare_kafka(case: Case) -> Iterator[Disagreement]:
    """Compare kafka mode with Kafka's own answers."""
    answers = kafka_answers(case)
    for stage in STAGES:
        # a real log has no answer for some settings: magic below 2, offsets below 0
        if stage in case["expect"] and not (
            stage == "append" and case["expect"][stage].get("skipped")
        ):
            yield from _compare_stage(case["id"], stage, case["expect"][stage], answers[stage])


def compare_strict(case: Case) -> Iterator[Disagreement]:
    """Compare strict mode with the line's own expectation."""
    cfg, expected = case.get("cfg", {}), case["expect_strict"]
    validator = LogValidator(
        policy_of(cfg),
        mode="strict",
        profile=case.get("profile", "produce"),
        **strict_settings(cfg),
        **version_of(case),
    )
    # check leaves rule 40 to the caller that appends
    ask = validator.validate if case.get("rule", {}).get("stage") == "append" else validator.check
    result = ask(case["batch"], **_append_context(cfg))
    got = {
        "ok": result.ok,
        "code": int(result.error_code),
        "rule": result.rule.id if result.rule else None,
        "reports": [rule.id for rule in result.reports],
    }
    for name, value in expected.items():
        if name in got and got[name] != value:
            yield Disagreement(case["id"], "strict", name, value, got[name])


def _append_context(cfg: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a whole append."""
    return {
        "now_ms": cfg.get("now", 0),
        "origin": cfg.get("origin", "CLIENT"),
        "produce_version": cfg.get("produce_version", 9),
        "first_offset": cfg.get("first_offset", 0),
        "leader_epoch": cfg.get("leader_epoch", 0),
        "to_magic": cfg.get("to_magic", 2),
    }


def compare_rule(case: Case) -> Iterator[Disagreement]:
    """Check that kafka mode names the rule where a golden line breaks it, and does not where the
    line obeys it.
    """
    cfg, rule = case["cfg"], case["rule"]
    validator = LogValidator(policy_of(cfg), mode="kafka", **version_of(case))
    origin, leader_epoch = cfg.get("origin", "CLIENT"), cfg.get("leader_epoch", 0)
    if rule["stage"] == "request":
        result = validator.check_request(
            case["batch"], produce_version=cfg.get("produce_version", 9)
        )
    elif rule["stage"] == "analyze":
        result = validator.analyze(case["batch"], origin=origin, leader_epoch=leader_epoch)
        for name, value in case.get("shows", {}).items():
            if getattr(result, name, None) != value:
                yield Disagreement(case["id"], "analyze", name, value, getattr(result, name, None))
    elif rule["stage"] == "validate":
        arguments = {
            name: value for name, value in _append_context(cfg).items() if name != "produce_version"
        }
        result = validator.validate_messages_and_assign_offsets(case["batch"], **arguments)
    else:
        result = validator.validate(case["batch"], **_append_context(cfg))
    named = result.rule.id if result.rule else None
    # extras are not Kafka's rules, and rules 1 and 11 refuse nothing: their effect is in "shows"
    silent = rule["id"].startswith("S") or (result.ok and "shows" in case)
    if (named == rule["id"]) != bool(rule["broken"]) and not (rule["broken"] and silent):
        yield Disagreement(
            case["id"], rule["stage"], "rule", rule["id"] if rule["broken"] else None, named
        )


def compare_log(case: Case) -> Iterator[Disagreement]:
    """Compare the findings of the log profile in a segment of the line's bytes with
    ``expect_log``.
    """
    cfg = case["cfg"]
    options = Options(
        profile="log",
        policy=policy_of(cfg),
        cleanup_policy="compact" if cfg.get("compact", False) else "delete",
        **strict_settings(cfg),
        **version_of(case),
    )
    with tempfile.TemporaryDirectory() as folder:
        segment = Path(folder) / "topic-0" / "00000000000000000000.log"
        segment.parent.mkdir()
        segment.write_bytes(case["batch"])
        if case["index"]:
            segment.with_suffix(".index").write_bytes(case["index"])
        found = [
            {"rule": finding.rule.id, "position": finding.position, "offset": finding.offset}
            for finding in check_paths([segment], options, Summary())
        ]
    if found != case["expect_log"]:
        yield Disagreement(case["id"], "log", "findings", case["expect_log"], found)


def kafka_refuses(case: Case) -> int | None:
    """Return the code with which Kafka's log refuses the case, 0 if it appends it, None if the case
    does not say.

    Only a client's request passes ProduceRequest.validateRecords, and LogValidator sees only what
    clients and coordinators append (UnifiedLog.appendAsLeader, appendAsFollower).
    """
    expect, origin = case["expect"], case.get("cfg", {}).get("origin", "CLIENT")
    stages = [*(["request"] if origin == "CLIENT" else []), "analyze"]
    stages += ["validate"] if origin in ("CLIENT", "COORDINATOR") else []
    if (
        case.get("profile", "produce") != "produce"
        or case.get("cfg", {}).get("source", "auto") != "auto"
    ):
        return None
    for stage in stages:
        if stage not in expect:
            return None
        if not expect[stage].get("ok"):
            return int(expect[stage].get("code", 0))
        if stage == "analyze" and expect[stage].get("valid_bytes") == 0:
            return 0  # UnifiedLog.append returns before LogValidator
    # "final" counts what LogValidator built, also for an origin that does not pass it
    resized = "validate" in stages and expect.get("final") == "resize"
    return int(ErrorCode.MESSAGE_TOO_LARGE) if resized else 0


def strict_results(case: Case) -> dict[str, ValidationResult]:
    """Return the verdicts on a case in strict mode with the default extras, by each method that
    checks one batch.
    """
    cfg, batch = case.get("cfg", {}), case["batch"]
    validator = LogValidator(policy_of(cfg))
    arguments = _append_context(cfg)
    results = {
        "check": validator.check(batch, **arguments),
        "validate": validator.validate(batch, **arguments),
    }
    # check_ranges assumes a base offset to which the record count can be added
    if arguments["first_offset"] <= 1 << 62:
        results["check_ranges"] = validator.check_ranges(
            batch, [(0, len(batch))], **arguments
        ).result(0)
    return results


#: Codecs whose libraries here are others than Kafka's, so that the size of what they recompress
#: differs.
_OTHER_LIBRARIES = ("snappy", "lz4", "zstd")


def compare_promise(case: Case) -> Iterator[Disagreement]:
    """Compare strict mode with Kafka's own answers: it accepts only what Kafka accepts, and never
    answers -1.
    """
    refused = kafka_refuses(case)
    for name, result in strict_results(case).items():
        if result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            yield Disagreement(case["id"], "strict", f"{name} code", "an error of Kafka's API", -1)
        if not result.ok or not refused:
            continue
        # validate applies rule 40 to the bytes that it built
        if case["expect"].get("final") == "resize":
            target = case.get("cfg", {}).get("target", "producer")
            codec = (
                result.source.kafka_name
                if target == "producer" and result.source is not None
                else target
            )
            if name != "validate" or codec in _OTHER_LIBRARIES:
                continue
        yield Disagreement(case["id"], "strict", f"{name} accepts what Kafka refuses", refused, 0)


def compare(case: Case) -> list[Disagreement]:
    """Return all differences between our answers to a case and its expectation. An empty list: they
    agree.
    """
    found = [*compare_kafka(case), *compare_promise(case)]
    if case.get("rule", {}).get("stage", "log") != "log":
        found += compare_rule(case)
    if "expect_strict" in case:
        found += compare_strict(case)
    if "expect_log" in case:
        found += compare_log(case)
    return found
