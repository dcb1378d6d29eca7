"""Answers of batchval to the cases of ``batchval conformance``, compared with Apache Kafka's own.

Four stages are asked independently: request, analyze, validate and append. Strict mode has its own
expectation, and may accept only what Kafka accepts.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from batchval.cli.cases import STAGES, Case, policy_of, strict_settings
from batchval.core.batches.batch import batches
from batchval.core.batches.result import ValidationResult
from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from batchval.segment.check import Options, Summary, check_paths

__all__ = [
    "Disagreement",
    "compare",
    "kafka_answers",
    "kafka_refuses",
    "logical_sha256",
    "strict_results",
]

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
    return LogValidator(policy_of(case["cfg"]), kafka_version=case["kafka_version"], **more)


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
        kafka_version=case["kafka_version"],
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
    validator, arguments = LogValidator(policy_of(cfg)), _arguments(cfg, *_APPEND)
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
