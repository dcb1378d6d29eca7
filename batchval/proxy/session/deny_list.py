"""Requests that the settings deny: answered here with an authorization error, in their place.

    DenyRule   API names, globs of principals and listeners
    DenyList   principal -> the APIs that it may not use on one listener, and those of which it may
               not send the requests of brokers

No broker sees a denied request. Its API stays in the answer to ApiVersions: clients report an API
that is missing there as an old broker. A large request is answered in a thread, and its answer
counts as waiting before it is made: it may be several times as large.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.error_answers import SENTENCES, error_answer, reads_request, unauthorized
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Chunks
from batchval.protocol.walkers.broker_requests import BROKER_APIS, is_from_broker
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.proxy.session.requests import Answer, Denial, Item, RequestJob, Requests
from batchval.proxy.settings.options import DenyRule

__all__ = ["DenyList", "refuse_denied"]

#: Bytes of a request that is read on the loop to answer it: up to 1 us for each of them. The answer
#: to a larger one has no message, which would stand at each of its elements.
INLINE: Final = 512
#: Bytes of an answer for each byte of a request above `INLINE`, at most.
GROWTH: Final = 8
#: A larger one ends its connection, except Produce: its values take 200 times its size in memory.
MAX_READ_BYTES: Final = 128 << 10

_AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, -1})
#: Keys of APIs that are denied, and of those of which the requests of brokers are.
_Denied: TypeAlias = tuple[frozenset[int], frozenset[int]]
_NO_FRAME: Final = memoryview(b"")
_NO_ITEM: Final = Item(_NO_FRAME)


class DenyList:
    """The denied requests of one listener.

    ``guarded``  the APIs of which something is denied to some principal
    """

    MAX_KNOWN_PRINCIPALS = 1_000
    #: Characters of a principal that globs are compared with; a longer one may use no guarded API.
    MAX_MATCHED_LENGTH = 2_000

    def __init__(self, rules: Iterable[DenyRule], listener: str) -> None:
        self._rules = [rule for rule in rules if fnmatchcase(listener, rule.listeners)]
        self._all = _denied_by(self._rules)
        self.guarded = frozenset().union(*self._all)
        self._known: dict[str, _Denied] = {}

    def denied_to(self, principal: str | None) -> frozenset[int]:
        """Return the keys of the APIs that a principal may not use; None: that any may not."""
        return self._of(principal)[0]

    def shared_of(self, principal: str | None) -> frozenset[int]:
        """Return the keys of the APIs of which a principal may not send the requests of brokers."""
        return self._of(principal)[1]

    def _of(self, principal: str | None) -> _Denied:
        if principal is None or len(principal) > self.MAX_MATCHED_LENGTH:
            return self._all
        known = self._known.get(principal)
        if known is None:
            known = _denied_by(rule for rule in self._rules if rule.matches(principal))
            if len(self._known) >= self.MAX_KNOWN_PRINCIPALS:
                self._known.clear()
            self._known[principal] = known
        return known

    def denies(
        self, frame: memoryview, key: int, principal: str | None
    ) -> Literal["api", "inter-broker"] | None:
        """Return whether a principal may not send a request: because of its API, or as a request of
        brokers. Raises ProtocolError.
        """
        if key in self.denied_to(principal):
            return "inter-broker" if key in BROKER_APIS else "api"
        if key in self.shared_of(principal) and is_from_broker(frame[4:]):
            return "inter-broker"
        return None


def _denied_by(rules: Iterable[DenyRule]) -> _Denied:
    """Return the keys that rules deny, and those of which they deny the requests of brokers."""
    listed = list(rules)
    return (
        frozenset(key for rule in listed for key in rule.keys),
        frozenset(key for rule in listed for key in rule.shared),
    )


def refuse_denied(
    requests: Requests,
    deny_list: DenyList,
    frame: memoryview,
    key: int,
    version: int,
    correlation_id: int,
) -> bool:
    """Answer a request that is denied to its client; return whether it was. Raises ProtocolError.

    A request that comes before the broker has authenticated the client ends the connection: clients
    wait for that.
    """
    if deny_list.denies(frame, key, None) is None:
        return False
    is_asked = any(
        isinstance(one, Answer) and one.key in _AUTHENTICATION for one in requests.answers
    )
    if is_asked or not requests.identity.authenticated:
        requests.end("denied_early")
        return True
    if (why := deny_list.denies(frame, key, requests.identity.facts.principal)) is None:
        return False
    requests.effects.append(Denial(key, version, why == "inter-broker"))
    if _is_unanswerable(requests, frame, key):
        return True
    answer = Answer(correlation_id, key, version, None)
    is_part = why == "inter-broker" and key not in BROKER_APIS
    name = APIS[key].name
    work = _Denying(requests, frame, answer, f"{name} between brokers" if is_part else name)
    if len(frame) <= INLINE or not reads_request(key):
        ready = work.made()
        requests.place(answer)
        requests.answer_here(answer, ready)
    else:
        requests.place(answer)
        requests.keep_now(answer, GROWTH * len(frame))
        work.item.work = work
        requests.put(work.item)
        requests.effects.append(work)
    return True


def _is_unanswerable(requests: Requests, frame: memoryview, key: int) -> bool:
    """End the session where a request gets no answer; return whether it has been ended."""
    if key == ApiKey.PRODUCE:
        most = requests.limits.max_partitions
        if ProduceRequestView(frame[4:], max_partitions=most, oldest=0).expects_response:
            return False
        requests.end("denied")  # as a broker does: nobody waits for the error
    elif reads_request(key) and len(frame) > MAX_READ_BYTES:
        requests.end("denied_size")
    else:
        return False
    return True


class _Denying(RequestJob):
    """A job that makes the answer to one denied request, for ``ValidationQueue``."""

    def __init__(self, requests: Requests, frame: memoryview, answer: Answer, what: str) -> None:
        super().__init__(requests, frame)
        self._what = what
        self.answer = answer
        self.item = Item(frame, answer, waits=True)
        self._most = requests.limits.max_partitions
        self._ready: Chunks = []

    def made(self) -> Chunks:
        """Return the answer. Raises ProtocolError."""
        frame, key, version = self._frame[4:], self.answer.key, self.answer.version
        code = unauthorized(frame, key, version)
        is_short = len(frame) <= INLINE or not reads_request(key)
        text = f"{SENTENCES[code]} The gate denies {self._what}." if is_short else None
        return error_answer(frame, key, version, int(code), text, max_partitions=self._most)

    def make(self) -> None:
        """Make the answer, in a thread."""
        self._ready = self.made()

    def finish(self, error: BaseException | None) -> bool:
        """Answer, and let go on what waits for this request, unless there is an error."""
        requests, item = self.requests, self.item
        # a thread refers to its last job until it has another one: that keeps no frame
        item.work = None
        self._frame, self.item = _NO_FRAME, _NO_ITEM
        ready, self._ready = self._ready, []
        if self.cancelled:
            return False
        requests.let_go(self.answer)
        if error is None:
            item.waits = False
            requests.answer_here(self.answer, ready)
            return True
        requests.drop(requests.outbox.index(item))
        if isinstance(error, ProtocolError):
            requests.end("request_malformed")
        else:
            requests.proxy.log_error("a denied request could not be answered", error)
            requests.abort("fault")
        return False
