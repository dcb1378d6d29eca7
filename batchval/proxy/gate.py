"""A Produce request meets the engine: which partitions go on, with which claims, and what is said of the others.

    frame → ProduceRequestView → LogValidator.check for each partition → Judgement

Nothing is changed here. Most requests are judged at once; one whose decompression might hold the loop goes to a thread:
``judge`` then gives a Judgement that is not ``done``, and ``finish`` is what the thread calls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from batchval.core.claims import to_tag
from batchval.core.layout import ATTRIBUTES, CODEC_MASK, CRC, MAGIC
from batchval.core.result import ValidationResult
from batchval.core.short import settled_by_claims
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.ledger import ClaimsLedger
from batchval.policy import TopicPolicy
from batchval.protocol.produce import ProduceRequestView
from batchval.proxy.options import Counters, ProxyOptions, Refusal
from batchval.rules import EXTRAS, Rule

__all__ = ["Gate", "Judgement"]

#: Record errors that the answer to one request lists, over all its partitions.
MAX_RECORD_ERRORS: Final = 1000
#: Compressed bytes of one request that are decompressed on the loop; more go to a thread.
INLINE_COMPRESSED: Final = 48 << 10
#: What they may decompress to there; what says more of itself goes to a thread, too. Measured: 0.2 to 0.3 ms of text or
#: zeros under any codec, 2 to 3.5 ms where it is 80,000 records of one byte.
INLINE_DECOMPRESSED: Final = 1 << 20
#: That are remembered with their validators.
MOST_POLICIES: Final = 1000

_CODEC = ATTRIBUTES + 1  # the low byte of the attributes
_TAGS_FROM = 9

_Decision = Literal["ignore", "verify", "trust"]
_Refused = tuple[int, Sequence[tuple[int, str | None]], str | None]


class Judgement:
    """What is to become of one request.

    ``done``        False: ``Gate.finish`` has to be called, anywhere, before the rest is read
    ``untouched``   the received bytes go on as they are
    ``keep``        None (all), or for each partition whether it goes on;  ``refusals`` the answers for the others
    ``claims``      None to leave tags as they came, or each partition's
    ``any_left``    whether anything goes on
    """

    __slots__ = ("any_left", "claims", "decisions", "done", "keep", "now_ms", "refusals", "results", "untouched")

    def __init__(self, now_ms: int) -> None:
        self.done = True
        self.untouched = True
        self.any_left = True
        self.now_ms = now_ms
        self.keep: list[bool] | None = None
        self.refusals: list[_Refused | None] | None = None
        self.claims: list[bytes | None] | None = None
        self.decisions: list[tuple[bytes | None, _Decision] | None] | None = None
        self.results: list[ValidationResult | None] = []


class Gate:
    """One for all connections of a proxy. ``judge`` and ``settle`` are the loop's, ``finish`` may be any thread's.

    Where all is well lane.Lane asks the same validators, and none of this is called.
    """

    #: False: nothing is judged that need not be (for a bench, which asks what passing on alone costs)
    judges = True

    def __init__(self, options: ProxyOptions, counters: Counters) -> None:
        arguments: dict[str, Any] = {"extras": {rule.id: "report" for rule in EXTRAS if rule is not Rule.S8}}
        arguments.update(options.validator)
        if options.claims_out == "tag" and options.claims_in.word not in ("ignore", "verify"):
            raise BatchvalError(
                f"claims_out: tag sends what was computed or checked here, so it does not go with {options.claims_in}"
            )
        self.topics = options.topics
        for policy in (self.topics.default, *self.topics.globs.values()):
            _check_policy(policy)
        self.validator = LogValidator(self.topics.default, **arguments)
        limit = self.validator.max_decompressed_bytes
        self.has_quick = limit > INLINE_DECOMPRESSED
        arguments["max_decompressed_bytes"] = min(limit, INLINE_DECOMPRESSED)
        self.quick = LogValidator(self.topics.default, **arguments)
        self._by_policy: dict[TopicPolicy, tuple[LogValidator, LogValidator]] = {}
        self.ledger = None if options.claims_in.word == "ignore" else ClaimsLedger(options.claims_in)
        self.tags = options.claims_out == "tag"
        self.inline_compressed = INLINE_COMPRESSED
        self.enforce = options.mode == "enforce"
        self.listener = options.listener_name
        self.on_refusal = options.on_refusal
        self.counters = counters

    def validators_of(self, topic: str | None) -> tuple[LogValidator, LogValidator]:
        """The quick one and the one with the whole limit, with the policy of a topic."""
        if self.topics.only_one:
            return self.quick, self.validator
        policy = self.topics.of(topic)
        pair = self._by_policy.get(policy)
        if pair is None:
            _check_policy(policy)
            if len(self._by_policy) >= MOST_POLICIES:  # a cluster may change its topics' configurations for years
                self._by_policy.clear()
            pair = self._by_policy[policy] = (self.quick.with_policy(policy), self.validator.with_policy(policy))
        return pair

    def _validators(self, request: ProduceRequestView, i: int) -> tuple[LogValidator, LogValidator]:
        return (self.quick, self.validator) if self.topics.only_one else self.validators_of(request.topic(i))

    def judge(self, request: ProduceRequestView, sender: str, decision: str | None = None) -> Judgement:
        """Judges all partitions, as far as that can be done on the loop.

        ``decision`` is what the ledger has decided already for the claims of the one partition there is.
        """
        now_ms = time.time_ns() // 1_000_000
        judgement = Judgement(now_ms)
        version = request.api_version
        compressed = 0
        count = len(request)
        batches = [request.records(i) or b"" for i in range(count)]
        failed = self.validator.scan_produce_request(batches, produce_version=version) if count > 1 else None
        if failed is not None:
            # Kafka fails the whole request, and appends nothing of it
            judgement.results = [*failed]
            return judgement
        if self.ledger is not None:
            judgement.decisions = self._decide(request, batches, sender, now_ms, decision)
        settled = [False] * count
        for i, batch in enumerate(batches):
            if _may_be_compressed(batch):
                told = judgement.decisions[i] if judgement.decisions is not None else None
                if told is not None and told[1] == "trust" and told[0] is not None:
                    # whether trusted claims will spare the decompression, so that the loop need not
                    # fear it
                    settled[i] = settled_by_claims(self._validators(request, i)[1], batch, told[0], now_ms, version)
                if not settled[i]:
                    compressed += len(batch)
        if compressed > INLINE_COMPRESSED:
            judgement.done = False
            judgement.results = [None] * count
            return judgement
        for i, batch in enumerate(batches):
            claims = judgement.decisions[i] if judgement.decisions is not None else None
            quick, whole = self._validators(request, i)
            # a frame may state more than the quick one's limit, and claims would settle nothing for it
            validator = whole if settled[i] else quick
            result = validator.check(batch, now_ms=now_ms, produce_version=version, claims=claims)
            if self.has_quick and not settled[i] and not result.ok and result.rule is Rule.S8:
                judgement.done = False
                judgement.results.append(None)
            else:
                judgement.results.append(result)
        return judgement

    def _decide(
        self,
        request: ProduceRequestView,
        batches: Sequence[memoryview | bytes],
        sender: str,
        now_ms: int,
        decision: str | None,
    ) -> list[tuple[bytes | None, _Decision] | None] | None:
        """What to make of each partition's claims; None where there are none, and always below version 9."""
        if self.ledger is None or request.api_version < _TAGS_FROM or not request.has_claims:
            return None
        decisions: list[tuple[bytes | None, _Decision] | None] = []
        for i, batch in enumerate(batches):
            tag = request.claims(i)
            if tag is None or len(batch) <= _CODEC:
                decisions.append(None)
            else:
                decided = self.ledger.decide(sender, _crc(batch), now_ms) if decision is None else decision
                decisions.append((tag, cast(_Decision, decided)))
        return decisions

    def finish(self, request: ProduceRequestView, judgement: Judgement) -> None:
        """Judges what was put off, with the whole limit."""
        for i, result in enumerate(judgement.results):
            if result is None:
                claims = judgement.decisions[i] if judgement.decisions is not None else None
                judgement.results[i] = self._validators(request, i)[1].check(
                    request.records(i) or b"",
                    now_ms=judgement.now_ms,
                    produce_version=request.api_version,
                    claims=claims,
                )
        judgement.done = True

    def settle(self, request: ProduceRequestView, judgement: Judgement, sender: str, client: str) -> None:
        """What follows from the results: counted, logged, noted in the ledger, written down for whoever forwards."""
        refused = False
        counters = self.counters
        counters.produce_partitions_total += len(judgement.results)
        paths = counters.batches_by_path
        for i, result in enumerate(judgement.results):
            assert result is not None
            if not result.ok:
                refused = True
                self._log(request, i, result, client)
            else:
                path = result.path or "none"
                paths[path] = paths.get(path, 0) + 1
                if result.reports:
                    self._log(request, i, result, client)
            if self.ledger is not None and result.claims is not None:
                self.ledger.note(sender, result.claims, judgement.now_ms)
        if refused and self.enforce:
            self._refuse(judgement)
        if request.api_version >= _TAGS_FROM and judgement.any_left:
            self._retag(request, judgement)

    def _refuse(self, judgement: Judgement) -> None:
        refusals: list[_Refused | None] = []
        left = MAX_RECORD_ERRORS
        for result in judgement.results:
            assert result is not None
            if result.ok:
                refusals.append(None)
            else:
                errors = result.record_errors[:left] if left else []
                left -= len(errors)
                refusals.append((int(result.error_code), errors, _message(result, len(errors))))
        judgement.refusals = refusals
        judgement.keep = [refusal is None for refusal in refusals]
        judgement.any_left = any(judgement.keep)
        judgement.untouched = False

    def _retag(self, request: ProduceRequestView, judgement: Judgement) -> None:
        """No claims go on but those that were made or checked here."""
        came = request.has_claims
        if self.tags:
            claims = [self._tag(request.records(i), result) for i, result in enumerate(judgement.results)]
            self.counters.claims_tags_added_total += sum(1 for tag in claims if tag is not None)
        elif came:
            claims = [None] * len(judgement.results)
        else:
            return
        if came:
            self.counters.claims_tags_dropped_total += 1
        if came or any(tag is not None for tag in claims):
            judgement.claims = claims
            judgement.untouched = False

    @staticmethod
    def _tag(batch: memoryview | None, result: ValidationResult | None) -> bytes | None:
        """The claims of a compressed batch that has just been walked and accepted."""
        if result is None or not result.ok or batch is None or not batch[_CODEC] & CODEC_MASK:
            return None
        claims = result.batch_claims
        return None if claims is None else to_tag(claims, _crc(batch))

    def _log(self, request: ProduceRequestView, i: int, result: ValidationResult, client: str) -> None:
        counters = self.counters
        rule, error, reason = "", "", ""
        if not result.ok:
            rule = result.rule.slug if result.rule is not None else "unknown"
            error, reason = result.error_code.name, result.reason
            counters.partitions_refused[rule] = counters.partitions_refused.get(rule, 0) + 1
        reported = tuple(extra.slug for extra in result.reports)
        for slug in reported:
            counters.partitions_reported[slug] = counters.partitions_reported.get(slug, 0) + 1
        self.on_refusal(
            Refusal(
                self.listener,
                client,
                request.client_id,
                request.topic(i),
                request.partition(i),
                rule,
                error,
                reason,
                self.enforce and not result.ok,
                reported,
            )
        )


def _message(result: ValidationResult, listed: int) -> str:
    """Return the reason, and how many record errors the answer leaves out."""
    more = result.record_errors_count - listed
    return f"{result.reason}; {more} of the record errors are not listed" if more else result.reason


def _may_be_compressed(batch: memoryview | bytes) -> bool:
    """A batch by its header; of messages before magic 2, of which there may be many, nothing is known."""
    return len(batch) > _CODEC and (batch[MAGIC] < 2 or batch[_CODEC] & CODEC_MASK != 0)


def _crc(batch: memoryview | bytes) -> int:
    return int.from_bytes(batch[CRC:ATTRIBUTES], "big")


def _check_policy(policy: TopicPolicy) -> None:
    if policy.accept_claims_header:
        raise BatchvalError("accept_claims_header: a stock broker behind the proxy refuses batches of magic 3")
