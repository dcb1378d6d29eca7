"""The target ``verdicts``: whole Produce requests through the gate, judged by the plain validator.

A request of one to six partitions, with good and damaged batches, claims of every sort, topics with
policies of their own, names that cannot be topics and ids that nobody knows. Held against
LogValidator: every partition's verdict, the counters, and what is forwarded or answered.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

from batchval.core.batches.result import ValidationResult
from batchval.core.claims import carrier_of, compute, read, strip
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol import messages
from batchval.protocol.messages.produce import PartitionProduceData, TopicProduceData
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.produce.produce_validator import ProduceValidator, RequestVerdict
from batchval.proxy.produce.verdicts import Verdicts
from batchval.proxy.settings.options import Counters, Refusal, TopicPolicies
from tests.evidence.hostile.fast_path import _GLOBS, _TOPICS, _records
from tests.support.proxy import proxy_options

__all__ = ["FACTS", "verdicts_case"]

#: What the gate reads of a session.
FACTS: Final = SimpleNamespace(
    sender="CN=x", client="127.0.0.1:1", principal="User:x", listener="default"
)

_MAX_ERRORS = 1000
_INVENTED = ("a b", "", "x" * 300, "..")


def _gate(rng: random.Random, refusals: list[Refusal]) -> ProduceValidator:
    kafka = rng.random() < 0.2
    word = "ignore" if kafka else rng.choice(("ignore", "verify", "trust"))
    options = proxy_options(
        topics=TopicPolicies(TopicPolicy(), _GLOBS if rng.random() < 0.5 else None),
        claims_in=ClaimsPolicy.parse(word),
        claims_out=rng.choice(("none", "tag", "payload"))
        if word in ("ignore", "verify")
        else "none",
        mode=rng.choice(("enforce", "observe")),
        validation={"rules": "kafka"} if kafka else {},
        on_refusal=refusals.append,
    )
    gate = ProduceValidator(options, Counters())
    gate.topic_names = {bytes([n + 1]) * 16: name for n, name in enumerate(_TOPICS)}.get
    return gate


def _request(rng: random.Random) -> bytes:
    """Return a frame without its length."""
    version = rng.choice((3, 7, 8, 9, 9, 10, 11, 12, 13, 13))
    made = messages.ProduceRequest(api_version=version, acks=rng.choice((1, -1, 0)), timeout_ms=5)
    for _ in range(rng.choice((1, 1, 2, 3))):
        number = rng.randrange(len(_TOPICS) + 2)
        name = _TOPICS[number] if number < len(_TOPICS) else rng.choice(_INVENTED)
        topic = (
            TopicProduceData(name, bytes(16))
            if version < 13
            else TopicProduceData("", bytes([number + 1]) * 16)
        )
        for index in range(rng.choice((1, 1, 2))):
            records, tag = _records(rng)
            fields = () if tag is None or version < 9 else ((CLAIMS_TAG, tag),)
            if version >= 9 and rng.random() < 0.1:
                fields += ((30000, b"other"),)
            data: bytes | None = records if rng.random() < 0.95 else rng.choice((None, b""))
            topic.partition_data.append(
                PartitionProduceData(index, data, unknown_tagged_fields=fields)
            )
        made.topic_data.append(topic)
    return b"".join(made.encode(7, "test"))[4:]


def _expected(
    gate: ProduceValidator, request: ProduceRequestView, now_ms: int
) -> list[list[ValidationResult | None]]:
    """Return the plain validator's results by partition; None for a topic id without a name.

    Kafka looks at the first header of every partition, and at the rest of those whose id it knows.
    The plain validator cannot do one without the other: where both differ, both are answers.
    """
    count, version = len(request), request.api_version
    names = [
        request.topic(i) if version < 13 else gate.topic_names(request.topic_id(i) or b"")
        for i in range(count)
    ]
    known = [version < 13 or name is not None for name in names]
    if count > 1:
        every: list[Any] = [request.records(i) for i in range(count)]
        some = [records if known[i] else None for i, records in enumerate(every)]
        failed = [
            gate.validator.scan_produce_request(one, produce_version=version)
            for one in (every, some)
        ]
        possible: list[list[ValidationResult | None]] = [
            [*one] for one in failed if one is not None
        ]
        if None not in failed:
            return possible
    else:
        possible = []
    found: list[ValidationResult | None] = []
    for i in range(count):
        if not known[i]:
            found.append(None)
            continue
        tag = request.claims(i)
        records = request.records(i) or b""
        word: Any = "ignore" if gate.ledger is None else gate.ledger.policy.word
        has_none = tag is None and carrier_of(records) != "payload"
        claims = None if has_none or len(records) <= 22 or word == "ignore" else (tag, word)
        validator = gate.validators_of(names[i])[1]
        found.append(
            validator.check(records, now_ms=now_ms, produce_version=version, claims=claims)
        )
    return [*possible, found]


def _compared(verdict: RequestVerdict, expected: list[ValidationResult | None]) -> list[str]:
    verdicts = verdict.verdicts
    assert verdicts is not None
    left = _MAX_ERRORS
    for i, result in enumerate(expected):
        if result is None:
            if verdicts.rule(i) != "unknown-topic-id" or verdicts.error(i) != "UNKNOWN_TOPIC_ID":
                return [f"partition {i} has no known topic, and the verdict {verdicts.rule(i)}"]
            continue
        errors = [] if result.ok else result.record_errors[:left]
        left -= len(errors)
        ours = (
            verdicts.ok(i),
            verdicts.rule(i),
            verdicts.reason(i),
            verdicts.path(i),
            verdicts.record_errors(i),
        )
        rule = "" if result.ok or result.rule is None else result.rule.slug
        theirs = (result.ok, rule, result.reason, result.path, errors)
        if ours != theirs or verdicts.reports(i) != tuple(extra.slug for extra in result.reports):
            return [f"partition {i}: {ours}, but the validator says {theirs}"]
        if verdicts.error_code(i) != int(result.error_code):
            return [f"partition {i}: error {verdicts.error_code(i)}, not {int(result.error_code)}"]
    return []


def _followed(
    gate: ProduceValidator,
    request: ProduceRequestView,
    verdict: RequestVerdict,
    refusals: list[Refusal],
) -> list[str]:
    """Return the errors in what is forwarded, counted and logged."""
    verdicts = verdict.verdicts
    assert verdicts is not None
    refused = [i for i in range(len(request)) if not verdicts.ok(i)]
    counters = gate.counters
    counts = counters.partitions_refused, counters.partitions_observed
    expected = (0, len(refused)) if gate.observe.everything else (len(refused), 0)
    if tuple(sum(one.values()) for one in counts) != expected:
        return ["the counters have another number of refused or observed partitions"]
    if [r.rule for r in refusals if r.rule] != [verdicts.rule(i) for i in refused]:
        return ["the log lines are about other partitions"]
    goes_on = [i for i in range(len(request)) if gate.observe.everything or verdicts.ok(i)]
    if verdict.any_left != bool(goes_on):
        return ["any_left is wrong"]
    if not goes_on:
        verdict.answer(request)
        return []
    came = [carrier_of(request.records(i) or b"") == "payload" for i in range(len(request))]
    if verdict.untouched:
        as_it_came = len(goes_on) == len(request) and not request.has_claims and not any(came)
        return [] if as_it_came else ["it goes on as it came"]
    chunks = verdict.forwarded(request, 99)
    sent = ProduceRequestView(b"".join(chunks)[4:])
    if sent.correlation_id != 99 or _parts(request, goes_on) != _parts(sent, range(len(sent))):
        return ["other partitions go on"]
    return _claims_sent(gate, request, goes_on, sent, verdicts)


def _parts(
    request: ProduceRequestView, numbers: Iterable[int]
) -> list[tuple[Any, int, bytes | None]]:
    """Return topic, partition and records without claims in their payload."""
    return [
        (
            request.topic_id(i) or request.topic(i),
            request.partition(i),
            _without_claims(request.records(i)),
        )
        for i in numbers
    ]


def _without_claims(records: memoryview | None) -> bytes | None:
    if records is None:
        return None
    return strip(records) if carrier_of(records) == "payload" else bytes(records)


def _claims_sent(
    gate: ProduceValidator,
    request: ProduceRequestView,
    goes_on: list[int],
    sent: ProduceRequestView,
    verdicts: Any,
) -> list[str]:
    """Return the errors in the forwarded claims: they must be true and in their carrier, or
    absent.
    """
    for at, i in enumerate(goes_on):
        records, tag = sent.records(at) or b"", sent.claims(at)
        carried = carrier_of(records) == "payload"
        if gate.claims_out == "none" and (carried or tag is not None):
            return [f"partition {i}: claims go on that came"]
        if carried and gate.claims_out != "payload":
            return [f"partition {i}: claims go on in the payload, not in a tag"]
        if carried and tag is not None:
            return [f"partition {i}: claims go on twice"]
        if (carried or tag is not None) and read(records, tag) != compute(
            records, max_decompressed_bytes=1 << 30
        ):
            return [f"partition {i}: claims go on that are not true"]
        if (
            carried
            and len(records) > gate.validators_of(request.topic(i))[1].policy.max_message_bytes
        ):
            return [f"partition {i}: its claims make it larger than its topic allows"]
    return []


def verdicts_case(seed: int) -> list[str]:
    """Return what is wrong with the request that follows from this number."""
    rng = random.Random(seed)
    refusals: list[Refusal] = []
    gate = _gate(rng, refusals)
    request = ProduceRequestView(_request(rng), max_partitions=rng.choice((0, 6, 100)))
    if rng.random() < 0.3:
        gate.inline_work = gate.inline_compressed = 0
    verdict = gate.validate(request, FACTS.sender)
    heavy = rng.random() < 0.5
    while not verdict.done:
        heavy = gate.work(request, verdict, heavy=heavy, budget_s=0.0) == "heavy"
    found = []
    for expected in _expected(gate, request, verdict.now_ms):
        found = _compared(verdict, expected)
        if not found:
            break
    if not found:
        gate.settle(request, verdict, FACTS)
        found = _followed(gate, request, verdict, refusals)
    return found or _validated_again(rng, gate, request, verdict)


def _state(verdicts: Verdicts, i: int) -> tuple[Any, ...]:
    return (
        verdicts.error_code(i),
        verdicts.rule(i),
        verdicts.reason(i),
        verdicts.path(i),
        verdicts.record_errors(i),
    )


def _validated_again(
    rng: random.Random, gate: ProduceValidator, request: ProduceRequestView, verdict: RequestVerdict
) -> list[str]:
    """Return the errors after partitions were reopened and others refused by Python code."""
    verdicts = verdict.verdicts
    assert verdicts is not None
    numbers = range(len(request))
    before = [_state(verdicts, i) for i in numbers]
    again = [i for i in numbers if rng.random() < 0.5 and verdicts.rule(i) != "unknown-topic-id"]
    if verdicts.is_failed or not again:
        return []
    is_full = sum(len(verdicts.record_errors(i)) for i in numbers) >= _MAX_ERRORS
    for i in again:
        name = (
            request.topic(i)
            if request.api_version < 13
            else gate.topic_names(request.topic_id(i) or b"")
        )
        verdicts.reopen(i, gate.validators_of(name)[1])
    verdicts.validate(gate.validator, 0, 0, 1 << 62, 1 << 62)
    if not verdicts.done or (not is_full and before != [_state(verdicts, i) for i in numbers]):
        return [
            f"partitions {again} were reopened: {before} became {[_state(verdicts, i) for i in numbers]}"
        ]
    own = rng.choice(again)
    errors = [(n, f"error {n}") for n in range(rng.choice((0, 1, 3, 2000)))]
    verdicts.refuse(own, "own-rule", 87, errors, "why")
    others = [_state(verdicts, i) for i in numbers if i != own]
    code, rule, reason, _, kept = _state(verdicts, own)
    if (
        (code, rule) != (87, "own-rule")
        or not reason.startswith("why")
        or kept != errors[: len(kept)]
    ):
        return [f"partition {own} was refused, and is {code}, {rule}, {reason}"]
    refusals = verdicts.refusals([False] * len(request))
    if sum(len(one[1]) for one in refusals if one is not None) > _MAX_ERRORS or len(kept) < min(
        len(errors), 1
    ):
        return ["too many record errors are kept, or none"] if not is_full else []
    if verdicts.counts()[0].get("own-rule") != 1 or others != [
        _state(verdicts, i) for i in numbers if i != own
    ]:
        return [f"the refusal of partition {own} changed others, or is not counted"]
    return []
