"""The reference validator: what Kafka 4.4.0 answers to record batches, and what strict mode makes
of it.

Plain Python, written from Kafka's rules and not from the project's core, so that each can find the
other's mistakes.
``request``, ``analyze`` and ``validate`` are the broker's three stages, each alone; ``check`` is
all checks.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.types import AppendOrigin, CompressionType, TimestampType
from tests.evidence.reference.kafka_model.appending import keep, require_appendable
from tests.evidence.reference.kafka_model.batches import Batch, DefaultBatch, batches
from tests.evidence.reference.kafka_model.java import (
    JavaError,
    RecordErrors,
    Refused,
    TooMuchOutput,
)
from tests.evidence.reference.kafka_model.segment import Finding, check_segment
from tests.evidence.reference.kafka_model.settings import MAX_BODY_SIZE, Settings
from tests.evidence.reference.kafka_model.streams import Notes
from tests.evidence.reference.kafka_model.validator import Validated, Validator

__all__ = ["Answer", "analyze", "check", "logical_sha256", "request", "validate"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a stage or of all checks. ``rule`` is the first refusal; ``cause`` what is
    for a -1.
    """

    ok: bool
    error_code: int = 0
    rule: Rule | None = None
    cause: Rule | None = None
    reports: tuple[Rule, ...] = ()
    record_errors: list[tuple[int, Rule]] = field(default_factory=list)
    records_count: int = 0
    max_timestamp: int = -1
    append_time: int = -1
    next_offset: int = -1
    size_maybe_changed: bool = False
    in_place: bool = False
    converted: int = 0
    path: str = ""
    output: bytes | None = None
    temp_bytes: int = 0
    meters: dict[str, int] = field(default_factory=dict)
    valid_bytes: int = 0
    source: CompressionType | None = None
    batch_index: int = 0


def _refusal(error: Refused | JavaError) -> Answer:
    if isinstance(error, RecordErrors):
        return Answer(False, int(error.code or 0), error.rule, record_errors=error.errors)
    if isinstance(error, Refused):
        return Answer(False, int(error.code or 0), error.rule)
    return Answer(
        False, int(ErrorCode.UNKNOWN_SERVER_ERROR), error.rule or error.extra, error.extra
    )


# -- the three stages ------------------------------------------------------------------------------


def request(buffer: bytes, *, produce_version: int = 9) -> Answer:
    """Run ProduceRequest.validateRecords: rules 1 to 8."""
    try:
        _validate_request(buffer, produce_version)
    except (Refused, JavaError) as error:
        return _refusal(error)
    return Answer(True)


def _validate_request(buffer: bytes, produce_version: int) -> None:
    found = batches(buffer)
    first = next(found, None)
    if first is None:
        raise Refused(Rule.REQUEST_WITHOUT_BATCH)
    if first.magic != 2:
        raise Refused(Rule.REQUEST_MAGIC_NOT_2)
    if produce_version < 7 and first.codec is CompressionType.ZSTD:
        raise Refused(Rule.REQUEST_ZSTD_TOO_OLD)
    if next(found, None) is not None:
        raise Refused(Rule.REQUEST_MORE_THAN_ONE_BATCH)


def analyze(
    buffer: bytes,
    *,
    origin: str = "CLIENT",
    leader_epoch: int = 0,
    max_message_bytes: int = 1_048_588,
) -> Answer:
    """Run UnifiedLog.analyzeAndValidateRecords: rules 1 to 4 and 9 to 16, valid bytes, source
    codec.
    """
    analysis = _Analysis(AppendOrigin[origin], leader_epoch, max_message_bytes)
    try:
        analysis.run(buffer)
    except (Refused, JavaError) as error:
        return replace(_refusal(error), valid_bytes=analysis.valid_bytes)
    return Answer(True, valid_bytes=analysis.valid_bytes, source=analysis.source)


class _Analysis:
    """The broker's loop over the batches, before the validator."""

    def __init__(self, origin: AppendOrigin, leader_epoch: int, max_message_bytes: int) -> None:
        self.origin = origin
        self.leader_epoch = leader_epoch
        self.max_message_bytes = max_message_bytes
        # appends by a follower or a raft leader keep their offsets, which must then increase
        self.keeps_offsets = origin in (AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER)
        self.source = CompressionType.NONE
        self.valid_bytes = 0
        self.whole_bytes = 0

    def run(self, buffer: bytes) -> None:
        skipping = False
        last_offset = -1
        for batch in batches(buffer):
            if self.origin is AppendOrigin.RAFT_LEADER and batch.leader_epoch != self.leader_epoch:
                raise Refused(Rule.RAFT_LEADER_EPOCH_DIFFERS)
            if batch.magic >= 2 and self.origin is AppendOrigin.CLIENT and batch.base_offset != 0:
                raise Refused(Rule.BASE_OFFSET_NOT_ZERO)
            self.whole_bytes += batch.size
            skipping = skipping or self._is_of_later_epoch(batch)
            if skipping:
                continue
            is_monotonic = batch.last_offset > last_offset
            last_offset = batch.last_offset
            # a follower takes whatever size its leader took
            if self.origin is not AppendOrigin.REPLICATION and batch.size > self.max_message_bytes:
                raise Refused(Rule.BATCH_TOO_LARGE)
            if not batch.is_valid():
                raise Refused(Rule.CRC_MISMATCH)
            self.valid_bytes += batch.size
            if batch.codec is not CompressionType.NONE:
                self.source = batch.codec
            if self.keeps_offsets and not is_monotonic:
                self._print_offsets(buffer)
                raise JavaError("offsets out of order", rule=Rule.OFFSETS_OUT_OF_ORDER)

    def _is_of_later_epoch(self, batch: Batch) -> bool:
        epoch = batch.leader_epoch
        return self.origin is AppendOrigin.REPLICATION and epoch != -1 and epoch > self.leader_epoch

    @staticmethod
    def _print_offsets(buffer: bytes) -> None:
        """Read all offsets as Kafka's message does: a record that does not parse is the error
        then.
        """
        for batch in batches(buffer):
            for _ in batch.iterate():
                pass


def _codec(value: CompressionType | str) -> CompressionType:
    if isinstance(value, CompressionType):
        return value
    return CompressionType.NONE if value == "uncompressed" else CompressionType[value.upper()]


def _timestamp_type(value: TimestampType | str) -> TimestampType:
    if isinstance(value, TimestampType):
        return value
    return next(kind for kind in TimestampType if kind.kafka_name == value)


def validate(
    buffer: bytes,
    *,
    source: CompressionType | str,
    now: int = 0,
    first_offset: int = 0,
    leader_epoch: int = 0,
    origin: str = "CLIENT",
    target: CompressionType | str = "producer",
    compact: bool = False,
    to_magic: int = 2,
    ts_type: TimestampType | str = TimestampType.CREATE_TIME,
    before_max_ms: int = 2**63 - 1,
    after_max_ms: int = 3_600_000,
    max_record_body: int = MAX_BODY_SIZE,
) -> Answer:
    """Run LogValidator.validateMessagesAndAssignOffsets: rules 18 to 39."""
    codec = _codec(source)
    settings = Settings(
        source=codec,
        target=codec if target == "producer" else _codec(target),
        now=now,
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        origin=AppendOrigin[origin],
        compact=compact,
        to_magic=to_magic,
        ts_type=_timestamp_type(ts_type),
        before_max_ms=before_max_ms,
        after_max_ms=after_max_ms,
        max_record_body=max_record_body,
    )
    return _validate(buffer, settings, None, True)


def _validate(buffer: bytes, settings: Settings, notes: Notes | None, write_output: bool) -> Answer:
    validator = Validator(bytearray(buffer), settings, notes, write_output)
    try:
        result = validator.run()
    except (Refused, JavaError) as error:
        return replace(
            _refusal(error),
            path=validator.path,
            meters=dict(validator.meters),
            source=settings.source,
        )
    return _accepted(result, settings, dict(validator.meters))


def _accepted(result: Validated, settings: Settings, meters: dict[str, int]) -> Answer:
    return Answer(
        True,
        records_count=result.records_count,
        max_timestamp=result.max_timestamp,
        append_time=settings.now,
        next_offset=result.next_offset,
        size_maybe_changed=result.size_maybe_changed,
        in_place=result.in_place,
        converted=result.converted,
        path=result.path,
        output=result.output,
        temp_bytes=result.temp_bytes,
        meters=meters,
        source=settings.source,
    )


def logical_sha256(output: bytes) -> str:
    """Return a digest of the records of ``output`` that does not depend on the compression."""
    digest = hashlib.sha256()

    def blob(data: bytes | None) -> None:
        digest.update(
            struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
        )

    for batch in batches(output):
        for record in batch.iterate():
            headers = record.headers()
            digest.update(struct.pack(">qq", record.offset, record.timestamp))
            blob(record.key())
            blob(record.value())
            digest.update(struct.pack(">i", len(headers)))
            for name, content in headers:
                blob(name)
                blob(content)
    return digest.hexdigest()


# -- all checks ------------------------------------------------------------------------------------


def check(
    buffer: bytes,
    policy: TopicPolicy | None = None,
    *,
    now_ms: int = 0,
    mode: str = "strict",
    profile: str = "produce",
    extras: Mapping[str, str] | None = None,
    max_decompressed_bytes: int = 64 << 20,
    origin: str = "CLIENT",
    produce_version: int = 9,
    leader_epoch: int = 0,
    to_magic: int = 2,
    first_offset: int = 0,
) -> Answer:
    """Run a broker's checks in its order; the first refusal stands. No batch is rebuilt.

    ``extras`` says ``report`` for those of the extras that shall not refuse; S8 and the names of
    causes always do.
    """
    policy = policy or TopicPolicy()
    buffer = bytes(buffer)
    strict = mode == "strict"
    notes = Notes(max_decompressed_bytes) if strict else None
    active_extras = _Extras(extras or {})
    if profile == "log":
        return _check_log(buffer, policy, max_decompressed_bytes if strict else None, active_extras)
    settings = Settings(
        source=CompressionType.NONE,
        target=CompressionType.NONE,
        now=now_ms,
        first_offset=first_offset,
        leader_epoch=leader_epoch,
        origin=AppendOrigin[origin],
        compact=policy.is_compacted,
        to_magic=to_magic,
        ts_type=_timestamp_type(policy.message_timestamp_type),
        before_max_ms=policy.message_timestamp_before_max_ms,
        after_max_ms=policy.message_timestamp_after_max_ms,
        max_record_body=policy.max_decompressed_message_bytes,
    )
    try:
        answer = _check_produce(buffer, policy, settings, produce_version, notes)
    except TooMuchOutput:
        return _by_extra(Rule.S8)
    if not strict:
        return answer
    return active_extras.apply(answer, notes.found if notes else set())


def _check_produce(
    buffer: bytes,
    policy: TopicPolicy,
    settings: Settings,
    produce_version: int,
    notes: Notes | None,
) -> Answer:
    analysis = _Analysis(settings.origin, settings.leader_epoch, policy.max_message_bytes)
    try:
        if settings.origin is AppendOrigin.CLIENT:
            _validate_request(buffer, produce_version)
        analysis.run(buffer)
    except (Refused, JavaError) as error:
        return _refusal(error)
    if notes:
        _note_frame(buffer, analysis, settings.origin, notes)
    if analysis.valid_bytes <= 0:
        return Answer(
            True,
            next_offset=settings.first_offset,
            append_time=settings.now,
            source=analysis.source,
        )
    limit = notes.max_output if notes else None
    if analysis.keeps_offsets:
        return _keep(buffer, analysis, settings, limit)
    target = policy.compression_type
    settings = replace(
        settings,
        source=analysis.source,
        target=analysis.source if target == "producer" else _codec(target),
    )
    answer = _validate(buffer[: analysis.valid_bytes], settings, notes, False)
    if answer.ok and settings.to_magic == 2:
        try:
            require_appendable(
                next(batches(buffer)),
                origin=settings.origin,
                first_offset=settings.first_offset,
                leader_epoch=settings.leader_epoch,
                records_count=answer.records_count,
                is_rebuilt=answer.size_maybe_changed,
                limit=limit,
            )
        except (Refused, JavaError) as error:
            return replace(
                _refusal(error), path=answer.path, meters=answer.meters, source=settings.source
            )
    return replace(answer, valid_bytes=analysis.valid_bytes, output=None)


def _keep(buffer: bytes, analysis: _Analysis, settings: Settings, limit: int | None) -> Answer:
    """Append as a follower or Raft leader, without LogValidator."""
    try:
        kept = keep(buffer, analysis.valid_bytes, settings.origin, settings.first_offset, limit)
    except (Refused, JavaError) as error:
        return _refusal(error)
    return Answer(
        True,
        records_count=kept.records_count,
        max_timestamp=kept.max_timestamp,
        next_offset=kept.next_offset,
        in_place=True,
        valid_bytes=analysis.valid_bytes,
        source=analysis.source,
    )


def _note_frame(buffer: bytes, analysis: _Analysis, origin: AppendOrigin, notes: Notes) -> None:
    if analysis.whole_bytes < len(buffer):
        notes.found.add(Rule.S2)
    first = next(batches(buffer), None)
    if (
        isinstance(first, DefaultBatch)
        and origin is AppendOrigin.CLIENT
        and first.attributes & 0xFFC0
    ):
        notes.found.add(Rule.S1)


def _by_extra(rule: Rule) -> Answer:
    return Answer(False, int(rule.error_code or 0), rule, rule)


class _Extras:
    """How the extras act: a finding refuses unless it is set to ``report``."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def reports(self, rule: Rule) -> bool:
        return rule is not Rule.S8 and self.settings.get(rule.id, "refuse") == "report"

    def apply(self, answer: Answer, found: set[Rule]) -> Answer:
        """Return Kafka's answer as strict mode gives it."""
        if not answer.ok:
            if answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
                return answer
            cause = answer.cause or Rule.S9
            return replace(answer, error_code=int(cause.error_code or 0), rule=cause)
        ordered = [rule for rule in EXTRAS if rule in found]
        reports = tuple(rule for rule in ordered if self.reports(rule))
        refusing = next((rule for rule in ordered if not self.reports(rule)), None)
        if refusing is None:
            return replace(answer, reports=reports)
        return replace(_by_extra(refusing), reports=reports, path=answer.path, meters=answer.meters)


def _check_log(
    buffer: bytes, policy: TopicPolicy, max_decompressed: int | None, active_extras: _Extras
) -> Answer:
    """Check a segment's batches in order; the first finding that refuses stands."""
    reports: set[Rule] = set()
    records = 0
    max_timestamp = -1
    strict = max_decompressed is not None
    for index, found in enumerate(
        check_segment(buffer, policy.cleanup_policy == "delete", max_decompressed)
    ):
        answer = _of_finding(found)
        if strict:
            answer = active_extras.apply(answer, found.extras)
        reports.update(answer.reports)
        if not answer.ok:
            return replace(answer, batch_index=index, reports=_ordered(reports))
        records += found.records_count
        max_timestamp = max(max_timestamp, found.max_timestamp)
    return Answer(
        True, records_count=records, max_timestamp=max_timestamp, reports=_ordered(reports)
    )


def _ordered(rules: set[Rule]) -> tuple[Rule, ...]:
    return tuple(rule for rule in EXTRAS if rule in rules)


def _of_finding(found: Finding) -> Answer:
    error = found.error
    if error is None:
        return Answer(True)
    return _by_extra(Rule.S8) if isinstance(error, TooMuchOutput) else _refusal(error)
