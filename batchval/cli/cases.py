"""Cases of ``batchval conformance``: JSON lines with Apache Kafka's own answers, and batchval's
answers compared with them.

Reads cases as JSON lines (``.jsonl``, ``.jsonl.gz``) and folders of them. A line holds ``id``,
``cfg``, ``batch_hex`` and ``expect``, Kafka's own answer to four stages that are asked
independently. ``kafka_version`` names the release of Kafka that answered; without it that is
4.4.0. Golden lines also hold ``profile`` and, asked where they stand: ``expect_strict``, strict
mode's answer;
``rule``, what the line is there to show (id, stage, broken); ``shows``, the batch loop's
``valid_bytes``; ``expect_log``, what the log profile finds in a segment of these bytes, with
``index_hex`` as its .index file. Strict mode may accept only what Kafka accepts.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from batchval.core.batches.batch import batches
from batchval.core.batches.result import ValidationResult
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, Release, find_release
from batchval.policy import TopicPolicy
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.file_formats import START_SIZE, json_of_line, not_json_reason
from batchval.types import AppendOrigin, CompressionType

__all__ = [
    "STAGES",
    "Case",
    "Disagreement",
    "NotACase",
    "compare",
    "kafka_answers",
    "kafka_refuses",
    "logical_sha256",
    "policy_of",
    "read_cases",
    "strict_results",
    "strict_settings",
]

Case = dict[str, Any]

STAGES = ("request", "analyze", "validate", "append")


class NotACase(Exception):
    """A line, or a file, that does not hold a case. The text names it."""


def read_cases(
    paths: list[Path], kafka_version: str | Release = DEFAULT_KAFKA_VERSION
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


def _cases(path: Path, kafka_version: str | Release) -> Iterator[Case | NotACase]:
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


def _case(case: object, default_id: str, kafka_version: str | Release) -> Case:
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
    try:  # the remaining words are the policy's and the validator's to know
        case["kafka_version"] = find_release(case.get("kafka_version", kafka_version)).name
        LogValidator(policy_of(cfg), kafka_version=_release(case), **strict_settings(cfg))
        for name, allowed in _ALLOWED.items():
            if cfg[name] not in allowed:
                raise ValueError(f"cfg.{name} is {cfg[name]!r}")
    except BatchvalError as error:
        raise ValueError(str(error)) from None
    return case


def _release(case: Case) -> Release:
    """Return the release of a case, also a newer one: read_cases has no stream for warnings."""
    return find_release(case["kafka_version"])


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


Answer = dict[str, Any]

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
    cfg, source = case["cfg"], case["cfg"]["source"]
    batch: bytes = case["batch"]
    validator = _validator(case, mode="kafka")
    request = validator.check_request(batch, produce_version=cfg["produce_version"])
    analyzed = validator.analyze(batch, **_arguments(cfg, "origin", "leader_epoch"))
    appended = validator.validate(batch, **_arguments(cfg, *_APPEND))
    answers = {
        "request": _stage(request),
        "analyze": _stage(analyzed),
        "append": _stage(appended) | _written(appended, APPENDED),
    }
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
        source=analyzed.source.kafka_name if source == "auto" else source,
        **_arguments(cfg, *_VALIDATE),
    )
    answers["validate"] = _stage(result) | _written(result, VALIDATED)
    return answers


def _written(result: Any, names: Iterable[str]) -> Answer:
    """Return the bytes of an answer, and the fields that are compared with them.

    ``recompressed``: a compression library wrote the bytes, so only their contents are compared.
    """
    if result.output is None:
        return {}
    recompressed = result.size_maybe_changed and any(
        batch.compression_type for batch in batches(result.output)
    )
    fields = {name: getattr(result, name) for name in names}
    return fields | {"output": result.output, "recompressed": recompressed}


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
    expected, profile = case["expect_strict"], case.get("profile", "produce")
    validator = _validator(case, profile=profile, **strict_settings(case["cfg"]))
    # check leaves rule 40 to the caller that appends
    ask = validator.validate if case.get("rule", {}).get("stage") == "append" else validator.check
    result = ask(case["batch"], **_arguments(case["cfg"], *_APPEND))
    got = {
        "ok": result.ok,
        "code": int(result.error_code),
        "rule": result.rule.id if result.rule else None,
        "reports": [rule.id for rule in result.reports],
    }
    for name, value in expected.items():
        if name in got and got[name] != value:
            yield Disagreement(case["id"], "strict", name, value, got[name])


_VALIDATE = ("now", "first_offset", "leader_epoch", "origin", "to_magic")

_APPEND = (*_VALIDATE, "produce_version")


def _arguments(cfg: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a configuration's values as arguments of LogValidator's methods."""
    return {{"now": "now_ms"}.get(name, name): cfg[name] for name in names}


def _validator(case: Case, **more: Any) -> LogValidator:
    return LogValidator(policy_of(case["cfg"]), kafka_version=_release(case), **more)


def compare_rule(case: Case) -> Iterator[Disagreement]:
    """Check that kafka mode names the rule where a golden line breaks it, and does not where the
    line obeys it.
    """
    cfg, rule, batch = case["cfg"], case["rule"], case["batch"]
    validator = _validator(case, mode="kafka")
    if rule["stage"] == "request":
        result = validator.check_request(batch, produce_version=cfg["produce_version"])
    elif rule["stage"] == "analyze":
        result = validator.analyze(batch, **_arguments(cfg, "origin", "leader_epoch"))
        for name, value in case.get("shows", {}).items():
            if getattr(result, name, None) != value:
                yield Disagreement(case["id"], "analyze", name, value, getattr(result, name, None))
    elif rule["stage"] == "validate":
        result = validator.validate_messages_and_assign_offsets(
            batch, **_arguments(cfg, *_VALIDATE)
        )
    else:
        result = validator.validate(batch, **_arguments(cfg, *_APPEND))
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
        kafka_version=_release(case),
        **strict_settings(cfg),
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
    cfg, expect, origin = case["cfg"], case["expect"], case["cfg"]["origin"]
    stages = [*(["request"] if origin == "CLIENT" else []), "analyze"]
    stages += ["validate"] if origin in ("CLIENT", "COORDINATOR") else []
    if case.get("profile", "produce") != "produce" or cfg["source"] != "auto":
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
    cfg, batch = case["cfg"], case["batch"]
    validator, arguments = _validator(case), _arguments(cfg, *_APPEND)
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
            target = case["cfg"].get("target", "producer")
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
