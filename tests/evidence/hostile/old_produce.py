"""The target ``old_produce``: Produce 0 to 2 through the gate, against LogValidator of Kafka 3.9.

Message sets of magic 0 and 1, good and damaged, and batches of magic 2, in requests of one to four
partitions. Each partition has the verdict of ``LogValidator.validate``, and the batch that goes on
is the one that it builds, except for its claims.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from batchval import LogValidator, TopicPolicy
from batchval.core.batches.result import ValidationResult
from batchval.core.claims import carrier_of, compute, read, strip
from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, lower
from batchval.proxy.produce.produce_validator import ProduceValidator, RequestVerdict
from batchval.proxy.settings.options import Counters, TopicPolicies
from batchval.record_rules import RecordRules, SchemaIds
from tests.evidence.hostile.verdicts import FACTS
from tests.support import batches
from tests.support.batches import GZIP, LZ4, SNAPPY, message, wrapper
from tests.support.old_produce import old_answer, old_lz4, old_produce, raw_snappy
from tests.support.proxy import proxy_options

__all__ = ["old_produce_case"]

_NOW: Final = 1_700_000_000_000
_POLICIES: Final = {
    "plain": TopicPolicy(),
    "small": TopicPolicy(max_message_bytes=400),
    "compacted": TopicPolicy(cleanup_policy="compact"),
    "recent": TopicPolicy(message_timestamp_before_max_ms=1000),
    "gzip": TopicPolicy(compression_type="gzip"),
    "ids": TopicPolicy(record_rules=RecordRules(SchemaIds())),
    "gzip-ids": TopicPolicy(compression_type="gzip", record_rules=RecordRules(SchemaIds())),
}


def _with_id(rng: random.Random) -> bytes:
    """Return a value with a schema id, of which one set may have more than claims can state."""
    return struct.pack(">bi", 0, rng.randrange(rng.choice((2, 40)))) + b"text" * rng.randrange(9)


def _message_set(rng: random.Random) -> bytes:
    magic = rng.choice((0, 1, 1))
    count = rng.choice((1, 1, 2, 3, 20))
    with_ids = rng.random() < 0.5
    several = [
        message(
            magic if rng.random() < 0.98 else 1 - magic,
            offset=i if rng.random() < 0.9 else rng.randrange(9),
            key=rng.choice((None, b"", b"key")),
            value=rng.choice(
                (None, _with_id(rng)) if with_ids else (None, b"", b"value" * rng.randrange(40))
            ),
            timestamp=rng.choice((_NOW, _NOW, _NOW - 5000, -1, rng.randrange(-9, 1 << 62))),
            crc=rng.choice((None,) * 20 + (7,)),
        )
        for i in range(count)
    ]
    match rng.randrange(8):
        case 0:
            return raw_snappy(b"".join(several), magic)
        case 1 if magic == 0:
            return old_lz4(b"".join(several))
        case 2 | 3:
            return wrapper(several, rng.choice((GZIP, SNAPPY, LZ4)), magic, timestamp=_NOW)
        case 4 if rng.random() < 0.4:
            return batches.batch(batches.records(count), base_timestamp=_NOW)
    return b"".join(several)


def _damaged(rng: random.Random, records: bytes) -> bytes:
    data = bytearray(records)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        if data:
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + rng.choice((1, 4, 30))]
                case 2:
                    data[at:at] = rng.randbytes(rng.choice((1, 4, 30)))
    return bytes(data)


def _gate(rng: random.Random) -> ProduceValidator:
    options = proxy_options(
        topics=TopicPolicies(TopicPolicy(), _POLICIES),
        claims_out=rng.choice(("none", "payload")),
        mode=rng.choice(("enforce", "enforce", "observe")),
        validation={"rules": rng.choice(("strict", "kafka")), "kafka_version": "3.9"},
    )
    return ProduceValidator(options, Counters())


def _walked(frame: bytes) -> ProduceRequestView | None:
    try:
        return ProduceRequestView(frame, oldest=0)
    except ProtocolError:
        return None


def _expected(
    gate: ProduceValidator, request: ProduceRequestView, now_ms: int
) -> list[ValidationResult]:
    count, version = len(request), request.api_version
    every = [request.records(i) or b"" for i in range(count)]
    if count > 1:
        failed = gate.validator.scan_produce_request(every, produce_version=version)
        if failed is not None:
            return list(failed)
    found = []
    for i, records in enumerate(every):
        validator: LogValidator = gate.validators_of(request.topic(i))[1]
        found.append(
            validator.validate(records, now_ms=now_ms, produce_version=version, leader_epoch=0)
        )
    return found


def _with_epoch(batch: bytes, epoch: bytes) -> bytes:
    return batch[:12] + epoch + batch[16:]


def _forwarded(
    request: ProduceRequestView, verdict: RequestVerdict, found: list[ValidationResult]
) -> list[str]:
    """Return the errors in the forwarded request."""
    _, sent = messages.ProduceRequest.parse(b"".join(verdict.forwarded(request, 99))[4:])
    if (sent.api_version, sent.transactional_id, sent.acks) != (3, None, request.acks):
        return [f"Produce {sent.api_version} goes on, with acks {sent.acks}"]
    parts = iter([(topic.name, part) for topic in sent.topic_data for part in topic.partition_data])
    for i, result in enumerate(found):
        if verdict.keep is not None and not verdict.keep[i]:
            continue
        name, part = next(parts)
        if (name, part.index) != (request.topic(i), request.partition(i)):
            return ["other partitions go on"]
        batch = bytes(part.records)
        if carrier_of(batch) == "payload":
            if read(batch, None) != compute(
                batch, max_decompressed_bytes=1 << 30, schema_ids="ids" in name
            ):
                return [f"partition {i}: its claims are not true"]
            batch = strip(batch)
        check = LogValidator(mode="strict").check(batch, now_ms=verdict.now_ms, produce_version=3)
        if result.ok and result.path == "rebuilt":
            if batch != _with_epoch(bytes(result.output or b""), b"\xff\xff\xff\xff"):
                return [f"partition {i}: another batch goes on than the validator builds"]
            if check.reports or (
                check.rule is not None and check.rule.slug not in ("S10", "timestamp-out-of-range")
            ):
                return [f"partition {i}: what was built breaks {check.rule} {check.reports}"]
        elif result.ok and batch != request.records(i):
            return [f"partition {i}: a batch of magic 2 has changed"]
    return []


def _answered(request: ProduceRequestView, verdict: RequestVerdict) -> list[str]:
    """Return the errors in the answer, made here or by a broker that accepts everything."""
    version = request.api_version
    if not verdict.any_left:
        answer = old_answer(b"".join(verdict.answer(request))[4:], version)
        if answer.correlation_id != request.correlation_id or len(answer.partitions) > len(request):
            return ["the answer is another request's"]
        return []
    body = struct.pack(">ii", 5, 1) + struct.pack(">h1si", 1, b"t", 2)
    body += (
        struct.pack(">ihqq", 0, 56, 3, 4) + struct.pack(">ihqq", 1, 2, 3, 4) + struct.pack(">i", 9)
    )
    lowered = old_answer(b"".join(lower(ProduceResponseView(body, 3), version))[4:], version)
    codes = [part.error_code for part in lowered.partitions.values()]
    return [] if codes == [6, 2] else [f"the codes are {codes}"]


def old_produce_case(seed: int) -> list[str]:
    """Return what is wrong with the request that follows from this number."""
    rng = random.Random(seed)
    gate = _gate(rng)
    topics = rng.choices(list(_POLICIES), k=rng.choice((1, 1, 2, 4)))
    parts = [(topic, i, _damaged(rng, _message_set(rng))) for i, topic in enumerate(topics)]
    frame = old_produce(rng.randrange(3), 77, *parts, acks=rng.choice((1, -1)))[4:]
    request = _walked(frame if rng.random() < 0.9 else _damaged(rng, frame))
    if request is None or not len(request) or not request.is_raised:
        return []
    verdict = gate.validate(request, FACTS.sender, inline=rng.random() < 0.7)
    heavy = rng.random() < 0.5
    while not verdict.done:
        heavy = gate.work(request, verdict, heavy=heavy, budget_s=0.0) == "heavy"
    gate.settle(request, verdict, FACTS)
    verdicts = verdict.verdicts
    assert verdicts is not None
    found = _expected(gate, request, verdict.now_ms)
    for i, result in enumerate(found):
        if verdicts.ok(i) != result.ok or verdicts.error_code(i) != int(result.error_code):
            return [
                f"partition {i}: {verdicts.reason(i)!r}, but the validator says {result.reason!r}"
            ]
        goes_on = verdict.keep is None or verdict.keep[i]
        if result.ok and goes_on != bool(result.valid_bytes):
            return [f"partition {i} of {result.valid_bytes} bytes goes on: {goes_on}"]
        if not result.ok and goes_on and not gate.observe.everything:
            return [f"partition {i} goes on although it is refused"]
    wrong = _forwarded(request, verdict, found) if verdict.any_left else []
    return wrong or _answered(request, verdict)
