"""Validate one Produce request: which partitions go on, with which claims; refuse the others.

    frame → ProduceRequestView → Verdicts → RequestVerdict
    validate (loop) → work (thread, until "done") → settle (loop)
                   with "waiting" → the answers of a schema registry → work

The received bytes are not changed: message sets of Produce 0 to 2 become new batches of magic 2,
which go on as Produce 3, and so do batches whose claims are replaced. What costs little is
validated at once. A request of many partitions, much data or long decompression goes to a thread:
``validate`` returns a RequestVerdict that is not ``done``.

``KnownRefusals`` remembers by sender what took long to find: the same batch from the same sender
is not read again.

    a batch is refused after much work ──▶ add(sender, place, refusal)
    a batch of a sender that has any   ──▶ of(sender)[place], then its digest decides

``place`` is what the header of a batch says for nothing: its checksum, its size, the version of the
request. So a batch is hashed only where a sender has had one like it refused. The digest is keyed
and covers all bytes of the batch. What else a verdict depends on is in the refusal: the validator,
and the time (``verdicts.KnownRefusal``). Options belong to a ``ProduceValidator``, and so does this
table: nothing is left of it after a reload.

An acceptance is never remembered: what goes on to a broker has been read.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from batchval.core.batches.validator import LogValidator
from batchval.core.claims import carrier_of
from batchval.errors import BatchvalError, ErrorCode
from batchval.ledger import ClaimsLedger
from batchval.policy import TopicPolicy
from batchval.protocol.frame_memory import Charge
from batchval.protocol.message import Chunks
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import refuse
from batchval.protocol.walkers.topic_ids import ids_in_produce
from batchval.proxy.kit.topics import MAX_TOPIC_LENGTH
from batchval.proxy.produce.record_stage import RecordStage, Validators
from batchval.proxy.produce.verdicts import HEAVY, VALIDATED, KnownRefusal, Verdicts
from batchval.proxy.settings.options import ANONYMOUS, Counters, Facts, ProxyOptions, Refusal
from batchval.proxy.watch.observed_batches import ObserveRules
from batchval.proxy.watch.senders import NOBODY, READ_BYTES, Sender, Share

__all__ = [
    "MAX_BYTES",
    "MAX_SENDERS",
    "MAX_SENDER_BYTES",
    "KnownRefusals",
    "ProduceValidator",
    "RefusalKey",
    "RequestVerdict",
    "SliceOutcome",
]

#: Bytes of memory of all refusals, and of those of one sender. A refusal takes some hundred bytes,
#: and 32 for each of at most 1,000 record errors.
MAX_BYTES: Final = 8 << 20

MAX_SENDER_BYTES: Final = 128 << 10

#: Senders that have any.
MAX_SENDERS: Final = 1_000

_DIGEST_SIZE: Final = 16

_KEY_SIZE: Final = 32

#: The checksum in a batch's header, its size, the version of the Produce request.
RefusalKey: TypeAlias = tuple[int, int, int]


class _OfSender:
    """The refusals of one sender, the oldest first, and the memory that they take."""

    __slots__ = ("refusals", "size")

    def __init__(self) -> None:
        self.refusals: dict[RefusalKey, KnownRefusal] = {}
        self.size = 0

    def drop(self, place: RefusalKey) -> int:
        """Forget one refusal; return the memory that it took."""
        found = self.refusals.pop(place, None)
        size = 0 if found is None else found.size
        self.size -= size
        return size


class KnownRefusals:
    """The refusals that one ``ProduceValidator`` remembers. For any thread."""

    def __init__(self) -> None:
        self._secret = os.urandom(_KEY_SIZE)
        self._lock = threading.Lock()
        # the sender that was refused last is the last one
        self._senders: OrderedDict[str, _OfSender] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of refusals."""
        with self._lock:
            return sum(len(one.refusals) for one in self._senders.values())

    @property
    def size(self) -> int:
        """Return the memory of all refusals."""
        return self._size

    def digest(self, batch: memoryview) -> bytes:
        """Return a digest of a batch at which nobody can aim without the secret of this table."""
        return hashlib.blake2b(batch, digest_size=_DIGEST_SIZE, key=self._secret).digest()

    def of(self, sender: str) -> Mapping[RefusalKey, KnownRefusal] | None:
        """Return the refusals of a sender; None: it has none."""
        found = self._senders.get(sender)
        return None if found is None else found.refusals

    def add(
        self, sender: str, place: RefusalKey, refusal: KnownRefusal
    ) -> Mapping[RefusalKey, KnownRefusal] | None:
        """Remember a refusal; return those of its sender.

        A sender that has as much as it may loses its own oldest ones.
        """
        if refusal.size > MAX_SENDER_BYTES:
            return self.of(sender)
        with self._lock:
            found = self._senders.setdefault(sender, _OfSender())
            self._senders.move_to_end(sender)
            self._size -= found.drop(place)
            while found.size + refusal.size > MAX_SENDER_BYTES:
                self._size -= found.drop(next(iter(found.refusals)))
            found.refusals[place] = refusal
            found.size += refusal.size
            self._size += refusal.size
            while len(self._senders) > MAX_SENDERS or self._size > MAX_BYTES:
                _, gone = self._senders.popitem(last=False)
                self._size -= gone.size
            return found.refusals

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._senders.clear()
            self._size = 0


#: Compressed bytes of one request that are decompressed on the loop; more go to a thread. Measured:
#: up to 0.45 ms (gzip, zstd), and a batch of 64 kB goes to no thread, which costs 70 us.
INLINE_COMPRESSED: Final = 80 << 10

#: What a batch may decompress to there; one that turns out larger goes to a thread, too. Measured:
#: 0.2 to 0.3 ms of text or zeros under any codec. Many small records are bounded by INLINE_WORK.
INLINE_DECOMPRESSED: Final = 1 << 20

#: Other bytes of one request that are validated on the loop.
INLINE_UNCOMPRESSED: Final = 1 << 20

#: Bytes of a request of version 0 to 2 that is converted on the loop, where nothing is compressed.
INLINE_CONVERTED: Final = 64 << 10

#: Work that a request announces (verdicts.announced_work): about 1 ms.
INLINE_WORK: Final = 256 << 10

#: Partitions of one request that are validated on the loop.
INLINE_PARTITIONS: Final = 100

#: Bytes of one request's frame whose checksums the loop may compute where claims are trusted.
INLINE_FRAME: Final = 4 << 20

#: Bytes of one request besides its batches, which the loop writes again in an answer: about 0.1 ms.
INLINE_NAMES: Final = 64 << 10

#: Bytes of a topic's name that are decoded: a character more than Kafka allows, in UTF-8.
MAX_TOPIC_BYTES: Final = 4 * (MAX_TOPIC_LENGTH + 1)

#: A batch is heavy if it decompresses to more than the larger of these: bytes, and times its size.
LIGHT_DECOMPRESSED: Final = 1 << 20

LIGHT_TIMES: Final = 12

#: And if it announces more work than this: about 16 ms.
LIGHT_WORK: Final = 4 << 20

#: What stands for LIGHT_DECOMPRESSED where a session is known for short batches: about 16 ms.
SHORT_DECOMPRESSED: Final = 8 << 20

#: Work of a thread between two looks at the clock: about 2 ms.
SLICE_WORK: Final = 512 << 10

#: Partitions of one request that get a log line each. The rest has a line for each rule and
#: outcome, with a count.
MAX_LINES: Final = 100

#: Record errors, and bytes of claims, that a copy of a refused batch repeats.
MAX_COPIED_ERRORS: Final = 20

MAX_COPIED_CLAIMS_BYTES: Final = 1 << 10

#: Policies that are remembered with their validators.
MAX_POLICIES: Final = 10_000

_TAGS_FROM = 9

_KNOWN_ACKS = (-1, 0, 1)

_CORRELATION_ID = 8  # where it stands in a request's frame, after the length

#: The tag and the batch of each partition that goes on.
Outgoing: TypeAlias = tuple[list[bytes | None], list[bytes | None]]

SliceOutcome = Literal["done", "more", "heavy", "waiting"]

_Decision = Literal["ignore", "verify", "trust"]

_Refused = tuple[int, Sequence[tuple[int, str]], str | None]


@dataclass(slots=True, eq=False)
class RequestVerdict:
    """The decision on one request.

    ``done``       False: ``ProduceValidator.work`` has to be called until it returns "done"
    ``cancelled``  set it, on the loop, when the client has left: ``work`` ends at the next batch
    ``cpu_s``      seconds of thread time that ``work`` has used
    ``account``    of the sender, and the ``share`` of its session
    ``gate``       validates it to the end, also where its session uses another one by then
    ``stage``      what is asked of records in Python; None where nothing is
    ``untouched``  the received bytes go on as they are
    ``keep``       None (all), or for each partition whether it goes on
    ``refusals``   the answers for the others
    ``refuses``    whether any of them is an error
    ``observed``   by rule, partitions that go on although they break it; None: all of them
    ``claims``     None to leave tags as they came, or each partition's; ``batches`` likewise
    ``any_left``   whether anything goes on
    """

    gate: ProduceValidator
    now_ms: int
    sender: str
    decision: str | None
    principal: str
    account: Sender = NOBODY
    share: Share = NOBODY.share
    done: bool = False
    cancelled: bool = False
    cpu_s: float = 0.0
    untouched: bool = True
    any_left: bool = True
    observed: dict[str, int] | None = None
    keep: list[bool] | None = None
    refusals: list[_Refused | None] | None = None
    refuses: bool = False
    claims: list[bytes | None] | None = None
    batches: list[bytes | None] | None = None
    verdicts: Verdicts | None = None
    stage: RecordStage | None = None
    _answer: Chunks | None = None
    _charge: Charge | None = None
    _forward: Chunks | None = None
    _prepared: bool = False

    def answer(self, request: ProduceRequestView) -> Chunks:
        """Return the response to a request of which nothing goes on, and that expects one."""
        if self._answer is None:
            self._answer = refuse(request, list(filter(None, self.refusals or ())))
        return self._answer

    def forwarded(self, request: ProduceRequestView, correlation_id: int) -> Chunks:
        """Return the request to send on, where it is not ``untouched``."""
        if self._forward is None:
            return self.rewritten(request, correlation_id)
        first = memoryview(self._forward[0])
        head = bytes(first[:_CORRELATION_ID]) + correlation_id.to_bytes(4, "big", signed=True)
        return [head, first[_CORRELATION_ID + 4 :], *self._forward[1:]]

    def take_batches(self, batches: list[bytes | None]) -> None:
        """Let these go on. The budget counts them as long as this is kept."""
        self.batches = batches
        self.untouched = False
        self._charge = Charge()
        self._charge.count(self.copied_bytes)

    @property
    def copied_bytes(self) -> int:
        """Return the bytes of the batches that the gate made: converted, or with other claims."""
        return sum(map(len, filter(None, self.batches or ())))

    def rewritten(self, request: ProduceRequestView, correlation_id: int) -> Chunks:
        """Return the request without what was refused, with the claims that go on."""
        return request.rewritten(
            correlation_id=correlation_id, keep=self.keep, claims=self.claims, batches=self.batches
        )


class ProduceValidator:
    """The validator of the Produce requests of all connections of a proxy. ``validate`` and
    ``settle`` are called on the loop, ``work`` in any thread.

    The fast path asks the same validators; where they accept, none of this is called.

    ``topic_names``  the name of a topic id (16 bytes), None where it is not known; for any thread
    """

    #: False skips validation that is not needed, for a bench of the cost of passing on.
    validates = True

    def __init__(self, options: ProxyOptions, counters: Counters) -> None:
        settings = options.settings
        arguments = settings.validation.arguments
        if options.release is not None:
            arguments["kafka_version"] = options.release
        if settings.claims_out != "none" and options.claims_in.word not in ("ignore", "verify"):
            raise BatchvalError(
                f"claims_out: {settings.claims_out} cannot be combined with "
                f"claims_in: {options.claims_in}: only claims that were computed here go on; "
                "set claims_in to ignore or verify"
            )
        self.topics = options.topics
        for policy in (self.topics.default, *self.topics.globs.values()):
            _check_policy(policy)
        self.validator = LogValidator(self.topics.default, **arguments)
        if self.validator.mode == "kafka" and options.claims_in.word != "ignore":
            raise BatchvalError(
                f"claims_in: {options.claims_in} cannot be combined with rules: kafka"
            )
        limit = settings.validation.max_decompressed_bytes
        arguments["max_decompressed_bytes"] = min(limit, INLINE_DECOMPRESSED)
        self.quick = LogValidator(self.topics.default, **arguments)
        self.known_refusals = KnownRefusals()
        self._by_policy: dict[TopicPolicy, tuple[LogValidator, LogValidator]] = {}
        self.ledger: ClaimsLedger | None = None
        if options.claims_in.word != "ignore":
            self.ledger = ClaimsLedger(options.claims_in, secret=options.claims_secret)
        self.claims_out = settings.claims_out
        self.inline_compressed = INLINE_COMPRESSED
        self.inline_uncompressed = INLINE_UNCOMPRESSED
        self.inline_work = INLINE_WORK
        self.observe = ObserveRules(settings.mode, settings.observe)
        self.on_refusal = options.on_refusal
        self.quarantine = options.quarantine
        self.topic_names: Callable[[bytes], str | None] = _no_name
        self.counters = counters

    def validators_of(self, topic: str | None) -> tuple[LogValidator | None, LogValidator]:
        """Return a topic's validators: the fast path's (None with custom rules), the full one."""
        if self.topics.only_one:
            return self.quick, self.validator
        policy = self.topics.of(topic)
        pair = self._by_policy.get(policy)
        if pair is None:
            _check_policy(policy)
            # a cluster may change its topics' configurations for years
            if len(self._by_policy) >= MAX_POLICIES:
                self._by_policy.clear()
                self.known_refusals.clear()
            pair = self._by_policy[policy] = (
                self.quick.with_policy(policy),
                self.validator.with_policy(policy),
            )
        if self.topics.rules:
            rules = self.topics.rules_of(topic)
            if rules is not None and rules.custom_rules:
                return None, pair[1]
        return pair

    def unknown_topics(self, request: ProduceRequestView) -> list[bytes]:
        """Return the topic ids of a request that have no name here; none before version 13.

        Ask a broker's Metadata for them once before ``validate``, which refuses their partitions.
        """
        names = self.topic_names
        return [topic_id for topic_id in ids_in_produce(request) if names(topic_id) is None]

    def validate(
        self,
        request: ProduceRequestView,
        sender: str,
        decision: str | None = None,
        *,
        inline: bool = True,
        principal: str = ANONYMOUS,
        account: Sender = NOBODY,
        share: Share = NOBODY.share,
    ) -> RequestVerdict:
        """Validate all partitions, as far as the loop may: about 1 ms; without ``inline`` none.

        ``decision`` is what the ledger has decided already for the claims of the one partition;
        ``principal`` decides with the topic what is observed only; ``account`` and ``share``
        pay for what is asked of records. Refusals are remembered for ``account``: what one sender
        has sent costs no other one anything.
        """
        now_ms = time.time_ns() // 1_000_000
        verdict = RequestVerdict(self, now_ms, sender, decision, principal, account, share)
        if not inline or request.size > INLINE_FRAME or _is_long(request):
            return verdict
        if request.is_raised and request.size > INLINE_CONVERTED:
            return verdict
        verdicts = self._begin(request, verdict)
        if not verdicts.done:
            if request.is_raised and not verdicts.converts_little(self.validator):
                return verdict
            compressed, other, work = verdicts.announced()
            if (
                compressed > self.inline_compressed
                or other > self.inline_uncompressed
                or work > self.inline_work
            ):
                return verdict
            verdicts.validate(
                self.validator, INLINE_DECOMPRESSED, 0, self.inline_work, INLINE_DECOMPRESSED
            )
        verdict.done = verdicts.done and (verdict.stage is None or not verdict.stage.is_needed)
        return verdict

    def _begin(self, request: ProduceRequestView, verdict: RequestVerdict) -> Verdicts:
        """Do what comes before any record is looked at."""
        goes_on = self._observed_in(request, verdict) if request.is_raised else None
        verdicts = Verdicts(request, verdict.now_ms, goes_on)
        verdicts.states_ids = self.claims_out != "none"
        verdicts.remember_for(self.known_refusals, verdict.account.key)
        verdicts.resolve(self.validator, self.topics.only_one, self.validators_of, self.topic_names)
        if not verdicts.scan(self.validator) and self.ledger is not None:
            verdicts.decide(self.validator, self.ledger, verdict.sender, verdict.decision)
        verdict.verdicts = verdicts
        if self.topics.rules:
            of = Validators(self.topics, self.validator, self.validators_of, self.topic_of)
            verdict.stage = RecordStage(of, request, verdicts, verdict.account, verdict.share)
        return verdicts

    def work(
        self,
        request: ProduceRequestView,
        verdict: RequestVerdict,
        *,
        heavy: bool,
        budget_s: float,
        is_bounded: bool = False,
    ) -> SliceOutcome:
        """Continue to validate, in a thread.

        Returns "done"; "waiting" where ``verdict.stage`` has questions; "more" where ``budget_s``
        of thread time have passed; "heavy", without ``heavy``, where the next batch decompresses to
        much more than it came with, or custom rules are called next; with ``is_bounded``, where it
        decompresses to more than SHORT_DECOMPRESSED, too. One batch is validated in one piece: its
        cost is bounded by ``max_decompressed_bytes``, and by its size. A verdict that was cancelled
        ends with "done", and stays not ``done``.
        """
        began = time.thread_time()
        try:
            verdicts = verdict.verdicts
            if verdicts is None:
                verdicts = self._begin(request, verdict)
            least_limit = LIGHT_DECOMPRESSED
            if heavy:
                least_limit = SHORT_DECOMPRESSED if is_bounded else 0
            while True:
                while not verdicts.done:
                    if verdict.cancelled:
                        return "done"
                    word = verdicts.validate(
                        self.validator, least_limit, LIGHT_TIMES, LIGHT_WORK, SLICE_WORK
                    )
                    if word == HEAVY:
                        return "heavy"
                    if word != VALIDATED and time.thread_time() - began >= budget_s:
                        return "more"
                if verdict.cancelled:
                    return "done"
                if verdict.stage is None or verdicts.is_failed:
                    break
                if not heavy and verdict.stage.calls_rules:
                    return "heavy"
                next_step = verdict.stage.step(began + budget_s)
                if next_step == "done":
                    break
                if next_step != "validate":
                    return next_step
            self._prepare(request, verdict, verdicts)
            if _is_long(request):
                self._write_early(request, verdict)
            verdict.done = True
            return "done"
        finally:
            verdict.cpu_s += time.thread_time() - began
            if verdict.verdicts is not None:
                read = verdict.verdicts.take_read_bytes()
                verdict.account.use(READ_BYTES, read, time.monotonic())

    def _write_early(self, request: ProduceRequestView, verdict: RequestVerdict) -> None:
        """Write what the loop would need milliseconds for."""
        if not verdict.any_left:
            if request.expects_response:
                verdict.answer(request)
        elif not verdict.untouched:
            verdict._forward = verdict.rewritten(request, 0)

    def _prepare(
        self, request: ProduceRequestView, verdict: RequestVerdict, verdicts: Verdicts
    ) -> None:
        """Note what follows from the verdicts for each partition."""
        if request.is_raised or not self.observe.everything:
            # what cannot be converted cannot go on, whatever is observed
            observes = None
            if self.observe.everything or self.observe.rules:
                observes = self._observed_in(request, verdict)
            keep = verdicts.keep(observes)
            verdict.observed = {} if observes is None else _observed(verdicts, keep)
            if not all(keep):
                verdict.keep = keep
                refusals = verdicts.refusals(keep, partial(self.topic_of, request))
                verdict.refusals = _with_acks(request, refusals) if request.is_raised else refusals
                for refusal in verdict.refusals:  # the first decides, mostly
                    if refusal is not None and refusal[0]:
                        verdict.refuses = True
                        break
                verdict.any_left = any(keep)
            verdict.untouched = not request.is_raised and verdict.keep is None
        if verdict.any_left:
            self._replace_claims(request, verdict, verdicts)
        verdict._prepared = True

    def _observed_in(
        self, request: ProduceRequestView, verdict: RequestVerdict
    ) -> Callable[[int], bool] | None:
        """Return whether a partition that breaks a rule goes on, by its index; None: none does."""
        if not self.observe.everything and not self.observe.rules:
            return None
        return lambda i: self.observe.observes(self.topic_of(request, i), verdict.principal)

    def _replace_claims(
        self, request: ProduceRequestView, verdict: RequestVerdict, verdicts: Verdicts
    ) -> None:
        """Let no claims go on but those that were computed here."""
        came = request.has_claims
        if (
            self.claims_out == "none"
            and not came
            and not request.is_raised
            and not verdicts.has_payload_claims()
        ):
            return
        tags, batches = self._outgoing(request, verdict, verdicts)
        if came or any(tag is not None for tag in tags):
            verdict.claims = tags
            verdict.untouched = False
        if any(batch is not None for batch in batches):
            verdict.take_batches(batches)

    def _outgoing(
        self, request: ProduceRequestView, verdict: RequestVerdict, verdicts: Verdicts
    ) -> Outgoing:
        """Return the tag and the batch of each partition that goes on; None: none, as it came."""
        has_tags = request.api_version >= _TAGS_FROM
        return verdicts.outgoing(self.validator, self.claims_out, verdict.keep, has_tags)

    def settle(
        self, request: ProduceRequestView, verdict: RequestVerdict, facts: Facts
    ) -> Chunks | None:
        """Count, log and note in the ledger what follows from the verdicts.

        Then ``verdict`` says what goes on. Returns the answer where nothing does, to a request that
        expects one; else None.
        """
        verdicts = verdict.verdicts
        assert verdicts is not None
        if not verdict._prepared:
            self._prepare(request, verdict, verdicts)
        broken, reported, paths, outcomes = verdicts.counts()
        counters = self.counters
        counters.produce_partitions_total += len(verdicts)
        counters.refusals_repeated_total += verdicts.repeated
        refused, observed = _outcomes(broken, verdict.observed)
        for counts, more in (
            (counters.partitions_refused, refused),
            (counters.partitions_observed, observed),
            (counters.partitions_reported, reported),
            (counters.batches_by_path, paths),
        ):
            if more:
                _add(counts, more)
        if verdict.claims is not None:
            counters.claims_tags_added_total += len(verdict.claims) - verdict.claims.count(None)
            counters.claims_tags_dropped_total += request.has_claims
        if verdict.batches is not None:
            added = sum(
                batch is not None and carrier_of(batch) is not None for batch in verdict.batches
            )
            counters.claims_payloads_added_total += added
            made = len(verdict.batches) - verdict.batches.count(None)
            if request.is_raised:
                counters.batches_converted_total += made
            else:
                counters.claims_payloads_dropped_total += made - added
        if self.ledger is not None and outcomes:
            trust = self.ledger.trust_of(facts.sender, verdict.now_ms)
            for what, number in outcomes.items():
                trust.noted(what, number, verdict.now_ms)
        if broken or reported:
            self._log(request, verdict, verdicts, facts, refused, observed)
        if verdict.any_left or not request.expects_response:
            return None
        return verdict.answer(request)

    def _log(
        self,
        request: ProduceRequestView,
        verdict: RequestVerdict,
        verdicts: Verdicts,
        facts: Facts,
        refused: dict[str, int],
        observed: dict[str, int],
    ) -> None:
        """Log each refused, observed or reported partition up to MAX_LINES, then how many more by
        rule.
        """
        listed, count = verdicts.noted(MAX_LINES)
        more: dict[tuple[str, bool], int] = {}
        if count > len(listed):
            more = {(rule, True): number for rule, number in refused.items()}
            more |= {(rule, False): number for rule, number in observed.items()}
        client_id = request.client_id
        keep = verdict.keep
        for i in listed:
            rule, enforced = verdicts.rule(i), keep is not None and not keep[i]
            refusal = Refusal(
                facts.listener,
                facts.client,
                client_id,
                self.topic_of(request, i),
                request.partition(i),
                rule,
                verdicts.error(i),
                verdicts.reason(i),
                enforced,
                verdicts.reports(i),
                facts.principal,
                version=request.api_version,
            )
            self.on_refusal(refusal)
            if rule:
                if more:
                    more[rule, enforced] -= 1
                if self.quarantine is not None and (enforced or self.quarantine.observed):
                    self.quarantine.take(
                        refusal, request.records(i), _further(request, verdicts, i, facts)
                    )
        for (rule, enforced), number in more.items():
            if number:
                if self.quarantine is not None and rule and (enforced or self.quarantine.observed):
                    self.quarantine.leave_out(number)
                what = "more partitions of this request"
                one = Refusal(
                    facts.listener, facts.client, client_id, None, -1, rule, "", what, enforced
                )
                version = request.api_version
                self.on_refusal(
                    one._replace(principal=facts.principal, batches=number, version=version)
                )

    def topic_of(self, request: ProduceRequestView, i: int) -> str | None:
        """Return the name of a partition's topic, cut if it is too long; None for an unknown id."""
        topic_id = request.topic_id(i)
        return request.topic(i, MAX_TOPIC_BYTES) if topic_id is None else self.topic_names(topic_id)


def _further(
    request: ProduceRequestView, verdicts: Verdicts, i: int, facts: Facts
) -> dict[str, Any]:
    """Return what a copy of a refused batch says besides its Refusal."""
    tag = request.claims(i)
    return {
        "software": facts.software,
        "api_version": request.api_version,
        "acks": request.acks,
        "record_errors": [list(one) for one in verdicts.record_errors(i)[:MAX_COPIED_ERRORS]],
        "claims_tag": None if tag is None else tag[:MAX_COPIED_CLAIMS_BYTES].hex(),
    }


def _is_long(request: ProduceRequestView) -> bool:
    """Return whether the loop would take long to answer the request, or to write it again."""
    if len(request) > INLINE_PARTITIONS:
        return True
    return request.size > INLINE_NAMES and request.size_without_records > INLINE_NAMES


def _with_acks(
    request: ProduceRequestView, refusals: list[_Refused | None]
) -> list[_Refused | None]:
    """Return the refusals as Kafka 3.9 answered versions 0 to 2 whose acks it did not know: it
    looked at no partition. A broker says the same of the others.
    """
    if not request.is_raised or request.acks in _KNOWN_ACKS:
        return refusals
    return [
        None if one is None else (int(ErrorCode.INVALID_REQUIRED_ACKS), (), None)
        for one in refusals
    ]


def _observed(verdicts: Verdicts, keep: list[bool]) -> dict[str, int]:
    """Return how many partitions go on although they break a rule, by rule."""
    found: dict[str, int] = {}
    for i, goes_on in enumerate(keep):
        if goes_on and (rule := verdicts.rule(i)):
            found[rule] = found.get(rule, 0) + 1
    return found


def _outcomes(
    broken: dict[str, int], observed: dict[str, int] | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many partitions that broke a rule are refused, and go on, by rule; all go on where
    ``observed`` is None.
    """
    if observed is None:
        return {}, broken
    if not observed:
        return broken, observed
    rest = {rule: number - observed.get(rule, 0) for rule, number in broken.items()}
    return {rule: number for rule, number in rest.items() if number}, observed


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number


def _no_name(_: bytes) -> None:
    """Return None: no topic id is known."""
    return


def _check_policy(policy: TopicPolicy) -> None:
    if policy.accept_claims_header:
        raise BatchvalError(
            "accept_claims_header: an Apache Kafka broker refuses batches of magic 3"
        )
