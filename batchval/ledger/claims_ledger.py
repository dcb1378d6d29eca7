"""The ledger of senders whose batches carry claims.

For each batch with claims it decides between the two uses of claims that the core has:

    verify   decompress, and compare the claims with the records
    trust    skip the records, if the claims settle everything

and it learns from the results. The sample is a keyed function of a secret, of a counter that is
kept here for each sender, and of the batch's checksum. A sender knows the last of the three alone:
it cannot predict which of its batches are checked, cannot choose one that is not, and a batch sent
again gets another draw.

The formula, for which the agents of the JVM have the same test vectors
(fixtures/claims/ledger.jsonl):

    pads of eight draws    HMAC-SHA-512(secret, uint64_be(block) | utf8(sender)), block = 0, 1, ...
    a draw                 the next pad, uint64 little-endian, the last one of a block first,
                           xor crc * 0x9E3779B97F4A7C15 mod 2^64
    sampled                if the draw is below round(rate * 2^64); with a rate of 1 always
"""

from __future__ import annotations

import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.result import CLAIMS, ValidationResult
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import carrier_of
from batchval.core.format.layout import ATTRIBUTES, CLAIMS_MAGIC, CODEC_MASK, CRC, MAGIC, RECORDS
from batchval.errors import ArgumentTypeError, BatchvalError
from batchval.ledger.sender_trust import Counts, SenderTrust
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.types import CompressionType

__all__ = ["DEMOTION_MS", "FIRST_CHECKED", "MAX_SENDERS", "ClaimsCounts", "ClaimsLedger"]

FIRST_CHECKED = 100  # batches of a new sender
DEMOTION_MS = 3_600_000
MAX_SENDERS = 10_000

_Decision: TypeAlias = Literal["ignore", "verify", "trust"]
_Tag: TypeAlias = bytes | bytearray | memoryview

_crc_at = Struct(">I").unpack_from
_BLOCK = Struct(">Q").pack
# The codecs whose payloads can carry claims.
_CODECS = (CompressionType.GZIP, CompressionType.ZSTD)


class ClaimsCounts(NamedTuple):
    """The number of batches with claims, by outcome.

    ``batches`` had claims that were to be read. ``sampled`` were checked because the draw chose
    them; those of new and of demoted senders, and all under ``verify``, are checked too.
    ``trusted`` were accepted on their claims. ``honest`` and ``lying`` are the results of checks,
    ``lying`` also of a batch that decompresses to more than the limit; ``unjudged`` were refused
    before their records were walked, ``unbound`` came with a malformed tag or with another batch's;
    ``demotions``: how often a lie ended the trust in a sender.
    """

    batches: int = 0
    sampled: int = 0
    trusted: int = 0
    honest: int = 0
    lying: int = 0
    unjudged: int = 0
    unbound: int = 0
    demotions: int = 0


_WHAT = {name: n for n, name in enumerate(ClaimsCounts._fields)}


def _pads(keyed: hmac.HMAC, sender: bytes, block: int) -> bytes:
    """Return the 64 bytes of a block of eight draws."""
    keyed = keyed.copy()
    keyed.update(_BLOCK(block) + sender)
    return keyed.digest()


class ClaimsLedger:
    """A ledger that decides which claims are checked, and keeps which senders lied. Many threads
    may use it at once.

    ``policy``        what to make of claims
    ``secret``        16 to 64 bytes that nobody else knows; None draws 32 new ones
    ``first_checked`` how many batches of a sender are all checked before ``audit`` samples
    ``demotion_ms``   how long all of a sender's batches are checked once it has lied; then it
                      starts as a new one

    A *sender* is the subject of a TLS certificate, or else the listener that its connection came
    by: never a connection, an address or a name that a client chose, for a new one of those costs
    nothing. Beyond ``most_senders`` the one that was longest silent is dropped (and would start
    anew); a demoted one is not.
    """

    def __init__(
        self,
        policy: ClaimsPolicy,
        *,
        secret: bytes | None = None,
        first_checked: int = FIRST_CHECKED,
        demotion_ms: int = DEMOTION_MS,
        most_senders: int = MAX_SENDERS,
    ) -> None:
        secret = os.urandom(32) if secret is None else bytes(secret)
        if not 16 <= len(secret) <= 64:
            raise BatchvalError(f"the secret has {len(secret)} bytes: expected 16 to 64 bytes")
        for name, value in (("first_checked", first_checked), ("demotion_ms", demotion_ms)):
            if value < 0:
                raise BatchvalError(f"{name} is {value}: expected 0 or more")
        if most_senders < 1:
            raise BatchvalError(f"most_senders is {most_senders}: expected 1 or more")
        self.policy = policy
        self.first_checked = first_checked
        self.demotion_ms = demotion_ms
        self.most_senders = most_senders
        self._keyed = hmac.new(secret, digestmod="sha512")
        self._below = round((policy.rate or 0.0) * 2**64)
        self._senders: OrderedDict[str, SenderTrust] = OrderedDict()
        self._totals = Counts()
        self._lock = threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "a ClaimsLedger cannot be pickled or copied: its counters and draws are those of one "
            "process; create one in each process"
        )

    def follow(self, policy: ClaimsPolicy) -> None:
        """Decide by this policy from the next batch on. Secret and senders stay."""
        with self._lock:
            self.policy = policy
            self._below = round((policy.rate or 0.0) * 2**64)
            if policy.word != "ignore":
                for sender in self._senders.values():
                    sender.follow(policy.word, self._below)

    # ---- decisions and answers -------------------------------------------------------------------

    def decide(self, sender: str, crc: int, now_ms: int) -> _Decision:
        """Return what to do with the claims of one batch: for the ``claims=`` of
        LogValidator.check.
        """
        if self.policy.word == "ignore":
            return "ignore"
        with self._lock:
            return self._sender(sender, now_ms).decided(crc, now_ms)

    def note(self, sender: str, answer: str | None, now_ms: int) -> None:
        """Note the outcome: ``result.claims``. A lie demotes the sender for ``demotion_ms``."""
        if answer is None or self.policy.word == "ignore":
            return
        with self._lock:
            self._sender(sender, now_ms).noted(_WHAT[answer], 1, now_ms)

    def trust_of(self, sender: str, now_ms: int) -> SenderTrust:
        """Return the state of a sender, for native code that decides and notes by itself. Not with
        ``ignore``.
        """
        with self._lock:
            return self._sender(sender, now_ms)

    def _sender(self, name: str, now_ms: int) -> SenderTrust:
        if not name:
            raise BatchvalError(
                f"sender is {name!r}: expected a certificate's subject or a listener's name"
            )
        of = self._senders.get(name)
        if of is not None:
            self._senders.move_to_end(name)
            return of
        of = SenderTrust(
            self.policy.word,
            self._below,
            self.first_checked,
            self.demotion_ms,
            partial(_pads, self._keyed, name.encode("utf-8", "surrogatepass")),
            self._totals,
        )
        if len(self._senders) >= self.most_senders:
            for silent, other in self._senders.items():
                if not other.is_demoted(now_ms):
                    del self._senders[silent]
                    break
            else:
                return of  # all places are taken by demoted senders: a new one stays new
        self._senders[name] = of
        return of

    # ---- with a validator ------------------------------------------------------------------------

    def check(
        self,
        validator: LogValidator,
        buffer: Any,
        *,
        sender: str,
        now_ms: int,
        tag: _Tag | None = None,
        **call: Any,
    ) -> ValidationResult:
        """Call ``validator.check`` with the claims of a tag, a payload or a header, by the policy.

        ``call`` is passed on (origin, produce_version, ...).
        """
        decision: _Decision = "ignore"
        view = _bytes_of(buffer)
        if self._claimed(view, tag, validator.policy):
            decision = self.decide(sender, _crc_of(view), now_ms)
        result = validator.check(buffer, now_ms=now_ms, claims=(tag, decision), **call)
        self.note(sender, result.claims, now_ms)
        return result

    def check_ranges(
        self,
        validator: LogValidator,
        buffer: Any,
        ranges: Sequence[tuple[int, int]],
        *,
        sender: str,
        now_ms: int,
        tags: Sequence[_Tag | None] | None = None,
        policies: TopicPolicy | Sequence[TopicPolicy] | None = None,
        **call: Any,
    ) -> BatchColumns:
        """Call ``validator.check_ranges`` for one sender's produce request; ``tags``: one, or None,
        for each range.
        """
        if tags is not None and len(tags) != len(ranges):
            raise BatchvalError(
                f"got {len(tags)} tags for {len(ranges)} ranges: expected one for each"
            )
        if self.policy.word == "ignore":
            return validator.check_ranges(buffer, ranges, policies, now_ms=now_ms, **call)
        view = _bytes_of(buffer)
        one = (
            validator.policy
            if policies is None
            else policies
            if isinstance(policies, TopicPolicy)
            else None
        )
        header = one is not None and one.accept_claims_header
        claims: list[tuple[_Tag | None, _Decision] | None] = []
        read = 0
        # One lock and one lookup of the sender a request: with small batches they cost more than
        # the validation.
        with self._lock:
            of = self._sender(sender, now_ms)
            for i, (start, length) in enumerate(ranges):
                tag = None if tags is None else tags[i]
                # too small, or a mistake of the caller's
                if length < ATTRIBUTES or start < 0 or length > len(view) - start:
                    claims.append(None)
                    continue
                if tag is None:
                    if policies is not None and not isinstance(policies, TopicPolicy):
                        header = policies[i].accept_claims_header
                    if not _has_claims(view, start, length, header):
                        claims.append(None)
                        continue
                read += 1
                claims.append((tag, of.decided(_crc_at(view, start + CRC)[0], now_ms)))
        columns = validator.check_ranges(
            buffer, ranges, policies, now_ms=now_ms, claims=claims, **call
        )
        if read:
            answers = columns.count_claims()
            with self._lock:
                of = self._sender(sender, now_ms)
                for answer, n in enumerate(answers):
                    if n and answer:
                        of.noted(_WHAT[CLAIMS[answer] or ""], n, now_ms)
        return columns

    @staticmethod
    def _claimed(batch: memoryview, tag: _Tag | None, policy: TopicPolicy) -> bool:
        if len(batch) < ATTRIBUTES:
            return False
        return tag is not None or _has_claims(batch, 0, len(batch), policy.accept_claims_header)

    # ---- counts ----------------------------------------------------------------------------------

    def counts(self, sender: str | None = None) -> ClaimsCounts:
        """Return the counts of one sender, or of all senders ever seen."""
        with self._lock:
            if sender is None:
                return ClaimsCounts(*self._totals.as_tuple())
            of = self._senders.get(sender)
            return ClaimsCounts() if of is None else ClaimsCounts(*of.counts())

    def senders(self) -> list[str]:
        """Return the senders that are kept, the longest silent first."""
        with self._lock:
            return list(self._senders)

    def is_demoted(self, sender: str, now_ms: int) -> bool:
        with self._lock:
            of = self._senders.get(sender)
            return of is not None and of.is_demoted(now_ms)


def _has_claims(view: memoryview, start: int, length: int, header: bool) -> bool:
    """Return whether a batch has claims in its payload, or in its header if those are read."""
    if view[start + MAGIC] == CLAIMS_MAGIC:
        return header
    # Only payloads of these codecs can carry claims.
    if length <= RECORDS or view[start + ATTRIBUTES + 1] & CODEC_MASK not in _CODECS:
        return False
    return carrier_of(view[start : start + length]) is not None


def _bytes_of(buffer: Any) -> memoryview:
    try:
        return memoryview(buffer).cast("B")
    except (TypeError, BufferError) as error:
        raise BatchvalError(f"expected a contiguous buffer of bytes: {error}") from None


def _crc_of(batch: memoryview) -> int:
    crc: int = _crc_at(batch, CRC)[0]
    return crc
