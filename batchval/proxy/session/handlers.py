"""Handlers of the requests and the answers of each API.

    Produce            validated; answers lose what was refused here, or hold brokers' addresses
    Metadata           answers name brokers (their listeners here take their place) and topics
                       (which are remembered)
    FindCoordinator, DescribeCluster, Fetch 16 and later, ShareFetch, ShareAcknowledge
                       answers may name brokers
    ApiVersions        answers keep what can be carried here
    SaslHandshake, SaslAuthenticate
                       show when the broker has authenticated the client
    old versions       are raised, and their answers lowered, where ``bridge`` is set (``bridges``)
    denied requests    are answered here with an authorization error, in their place
    all others         pass unchanged

A handler takes a request and gives its answer a place among ``Requests``; ``Answer.respond`` makes
of the broker's answer what the client gets. What the session has to do is one of their ``effects``.

No broker sees a denied request. Its API stays in the answer to ApiVersions: clients report an API
that is missing there as an old broker. A large request is answered in a thread, and its answer
counts as waiting before it is made: it may be several times as large.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.error_answers import SENTENCES, error_answer, reads_request, unauthorized
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Chunks
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from batchval.protocol.old_versions import PRODUCERS, Raised
from batchval.protocol.walkers.addresses import may_hold_addresses, rewrite_addresses
from batchval.protocol.walkers.broker_requests import BROKER_APIS
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, lower
from batchval.proxy.produce.validation_queue import Job
from batchval.proxy.session import version_bridge
from batchval.proxy.session.connection_log import upgrade_advice
from batchval.proxy.session.requests import (
    Answer,
    Item,
    MetadataQuestion,
    Pause,
    RequestJob,
    Requests,
    Respond,
    pass_on,
    rewrite,
)
from batchval.proxy.session.sasl_exchange import TOKENS, UNSUPPORTED_SASL_MECHANISM
from batchval.proxy.settings.options import Denied

__all__ = ["take", "validate_asked", "wants_no_answer"]

UNSUPPORTED_VERSION: Final = 35
#: The version of the gate's own Metadata requests: from 12 on they ask for topic ids (KIP-516).
_METADATA_VERSION: Final = 12
_TOPIC_IDS_FROM: Final = 13  # of Produce
_OLDEST_PRODUCE: Final = APIS[ApiKey.PRODUCE].min_version
#: The oldest version of Produce that Kafka 4 knows: older ones go on as this one.
OLDEST_PRODUCE: Final = PRODUCERS[ApiKey.PRODUCE].to
_CLIENT_ID: Final = "batchval-gate"

#: Bytes of a request that is read on the loop to answer it: up to 1 us for each of them. The answer
#: to a larger one has no message, which would stand at each of its elements.
INLINE: Final = 512
#: Bytes of an answer for each byte of a request above `INLINE`, at most.
GROWTH: Final = 8
#: A larger one ends its connection, except Produce: its values take 200 times its size in memory.
MAX_READ_BYTES: Final = 128 << 10

_AUTHENTICATION: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, -1})
_NO_FRAME: Final = memoryview(b"")
_NO_ITEM: Final = Item(_NO_FRAME)

_unpack_header = struct.Struct(">hhi").unpack_from

Handler = Callable[[Requests, memoryview, int, int, int, Chunks], None]


def take(
    requests: Requests,
    frame: memoryview,
    decision: str | None,
    inline: bool,
    is_clients: bool,
    out: Chunks,
) -> None:
    """Take a request that the fast path has left: by its API, or by its place in an exchange.

    ``decision``, ``inline``  see ``_produce``
    ``is_clients``            whether it is no request of a broker, where the fast path has looked
    """
    counters = requests.counters
    counters.requests_total += 1
    counters.request_bytes_total += len(frame)
    if requests.identity.sasl.tokens_left:
        _token(requests, frame, out)
        return
    try:
        key, version, correlation_id = _unpack_header(frame, 4)
    except struct.error:
        requests.end("request_header")
        return
    route = requests.proxy.routes.get(key)
    if route is None or not route[0] <= version <= route[1]:
        if key == ApiKey.API_VERSIONS and version > 0:
            _answer_versions(requests, correlation_id)
        else:
            carried = (
                "the gate does not carry this API"
                if route is None
                else "the gate supports versions {} to {}".format(*route)
            )
            requests.end("request_version", carried, (key, version))
        return
    requests.fast_path.note(frame, key, version)
    if key == ApiKey.PRODUCE and version < _OLDEST_PRODUCE and key not in requests.raised:
        requests.end("version_too_old", upgrade_advice(key), (key, version))
        return
    try:
        if (
            key in requests.guarded
            and not is_clients
            and refuse_denied(requests, frame, key, version, correlation_id)
        ):
            return
        if key == ApiKey.PRODUCE:
            _produce(requests, frame, version, correlation_id, decision, inline, out)
        else:
            handler = _of(key, version, route[2], requests.raised.get(key))
            handler(requests, frame, key, version, correlation_id, out)
    except ProtocolError as error:
        why = "produce_malformed" if key == ApiKey.PRODUCE else "request_malformed"
        requests.end(why, str(error), (key, version))


def _of(key: int, version: int, changed_from: int, raised: Raised | None) -> Handler:
    """Return the handler of requests of an API other than Produce.

    ``raised``  the old versions of this API that are raised
    """
    if raised is not None and version < raised.first_kept:
        return version_bridge.take
    handler = _HANDLERS.get(key)
    if handler is not None:
        return handler
    return _addresses if version >= changed_from else _plain


# ---- what most APIs need -------------------------------------------------------------------------


def _plain(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    requests.forward(frame, Answer(correlation_id, key, version, pass_on), out)


def _addresses(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    requests.forward(frame, Answer(correlation_id, key, version, rewrite), out)


def _is_own(requests: Requests, frame: memoryview) -> bool:
    """End the session if the gate itself sent this request (its upstream is the gate)."""
    size = int.from_bytes(frame[12:14], "big", signed=True)
    client_id = bytes(frame[14 : 14 + max(0, size)]).decode(errors="replace")
    if not requests.proxy.discovery.is_own_request(client_id):
        return False
    requests.abort("own_request")
    return True


def _metadata(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    if _is_own(requests, frame):
        return
    requests.forward(frame, Answer(correlation_id, key, version, _learn_topics), out)


def _learn_topics(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    requests.proxy.learn_topics(frame[4:], answer.version)
    return rewrite_addresses(
        frame[4:],
        answer.key,
        answer.version,
        requests.replace,
        correlation_id=answer.correlation_id,
        known=requests.written_brokers(answer.version),
    )


# ---- ApiVersions ---------------------------------------------------------------------------------


def _versions(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    if _is_own(requests, frame):
        return
    requests.identity.introduce(frame, version)
    requests.forward(frame, Answer(correlation_id, key, version, _intersect), out)


def _intersect(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    body = frame[4:]
    try:
        return requests.proxy.intersected(
            body, answer.version, answer.correlation_id, requests.raised
        )
    except ProtocolError:
        # an error in a form of its own (librdkafka's mock cluster): its code is enough for clients
        error_code = int.from_bytes(body[4:6], "big", signed=True)
        if error_code <= 0:
            raise
        return ApiVersionsResponse(error_code=error_code).encode(answer.correlation_id, 0)


def _answer_versions(requests: Requests, correlation_id: int) -> None:
    """Answer an unknown version of ApiVersions, as a broker that does not know it (KIP-511)."""
    first, last = requests.proxy.carried[ApiKey.API_VERSIONS]
    keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)]
    answer = Answer(correlation_id, ApiKey.API_VERSIONS, 0, None)
    response = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=keys)
    requests.place(answer)
    requests.answer_here(answer, response.encode(correlation_id, 0))


# ---- SASL ----------------------------------------------------------------------------------------


def _handshake(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    """Note the mechanism: it says how many tokens without headers come after version 0."""
    _, request = SaslHandshakeRequest.parse(frame[4:])
    if version == 0 and request.mechanism not in TOKENS:
        answer = Answer(correlation_id, key, version, None)
        response = SaslHandshakeResponse(UNSUPPORTED_SASL_MECHANISM, sorted(TOKENS))
        requests.place(answer)
        requests.answer_here(answer, response.encode(correlation_id, version))
        requests.end(
            "sasl_mechanism",
            f"mechanism {request.mechanism[:100]}, expected {', '.join(sorted(TOKENS))}",
        )
        return
    requests.identity.authentication_begins(request.mechanism)
    requests.effects.append(Pause.SASL_BEGINS)
    requests.forward(frame, Answer(correlation_id, key, version, _shaken), out)
    if version == 0:
        requests.effects.append(Pause.SASL)


def _shaken(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    with contextlib.suppress(ProtocolError):  # the client gets what cannot be read as it is
        response = SaslHandshakeResponse.decode(frame[4:], answer.version)
        if response.error_code:
            requests.identity.sasl.refused(response.error_code)
        elif answer.version == 0:
            requests.identity.sasl.accepted_0()
    if answer.version == 0:
        requests.effects.append(Pause.SASL_ANSWERED)
    return pass_on(requests, answer, frame)


def _token(requests: Requests, frame: memoryview, out: Chunks) -> None:
    """Pass a token of SaslHandshake 0 on: no header, no correlation id."""
    answer = Answer(0, -1, 0, _token_answered)
    answer.facts = requests.identity.sasl.client_token(frame[4:])
    requests.place(answer)
    if requests.outbox:
        requests.put(Item(frame, answer))
    else:
        out.append(frame)


def _token_answered(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    if requests.identity.sasl.broker_token():
        requests.effects.append(requests.identity.authenticated_as(answer.facts.principal))
    return [frame]


def _authenticate(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    _, request = SaslAuthenticateRequest.parse(frame[4:])
    answer = Answer(correlation_id, key, version, _authenticated)
    answer.facts = requests.identity.sasl.client_token(memoryview(request.auth_bytes))
    requests.forward(frame, answer, out)


def _authenticated(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    with contextlib.suppress(ProtocolError):  # as above
        response = SaslAuthenticateResponse.decode(frame[4:], answer.version)
        if response.error_code:
            requests.identity.sasl.refused(response.error_code)
        elif answer.facts.is_complete(bytes(response.auth_bytes)):
            requests.effects.append(requests.identity.authenticated_as(answer.facts.principal))
    return pass_on(requests, answer, frame)


# ---- Produce -------------------------------------------------------------------------------------


def _produce(
    requests: Requests,
    frame: memoryview,
    version: int,
    correlation_id: int,
    decision: str | None,
    inline: bool,
    out: Chunks,
) -> None:
    """Validate a Produce request, and send on what passes. Raises ProtocolError.

    ``decision`` is the ledger's, where the fast path has asked it; ``inline`` is False where it
    found that the batch decompresses to too much for the event loop.
    """
    raised = requests.raised.get(ApiKey.PRODUCE)
    oldest = OLDEST_PRODUCE if raised is None else raised.oldest
    request = ProduceRequestView(
        frame[4:], max_partitions=requests.limits.max_partitions_per_request, oldest=oldest
    )
    requests.counters.produce_requests_total += 1
    answer = None
    if request.expects_response:
        respond: Respond = _lower
        if version >= OLDEST_PRODUCE:
            respond = rewrite if may_hold_addresses(ApiKey.PRODUCE, version) else pass_on
        answer = Answer(correlation_id, ApiKey.PRODUCE, version, respond)
    question = None
    if version >= _TOPIC_IDS_FROM or not requests.identity.authenticated:
        question = _question(requests, request)
    if question is not None:
        item = Item(frame, answer, request, waits=True)
        asked = Answer(0, ApiKey.METADATA, question.api_version, partial(_question_answered, item))
        pieces = question.encode(0, _CLIENT_ID)
        requests.forward(memoryview(bytearray(b"".join(pieces))), asked, out, is_own=True)
    if answer is not None:  # as ``Requests.place``
        answer.taken_ns = requests.fast_path.taken_ns
        requests.answers.append(answer)
    if question is not None:
        requests.put(item)
        return
    verdict = requests.gate.validate(
        request,
        requests.identity.sender,
        decision,
        inline=inline,
        principal=requests.identity.facts.principal,
        account=requests.identity.account,
        share=requests.identity.share,
    )
    if verdict.done and not requests.outbox:
        end = requests.forward_validated(frame, answer, request, verdict, out)
        if end is not None:
            requests.effects.append(end)
        return
    item = Item(frame, answer, request, verdict, waits=not verdict.done)
    requests.put(item)
    if item.waits:
        requests.effects.append(Job(requests.identity, item, request, verdict))


def wants_no_answer(frame: memoryview, max_partitions: int) -> bool:
    """Return whether a request is a well-formed Produce with acks=0."""
    if frame[4:6] != int(ApiKey.PRODUCE).to_bytes(2, "big"):
        return False
    try:
        request = ProduceRequestView(frame[4:], max_partitions=max_partitions, oldest=0)
    except ProtocolError:
        return False
    return not request.expects_response


def _question(requests: Requests, request: ProduceRequestView) -> MetadataRequest | None:
    """Return what to ask the broker before validating: topic ids, or if it knows the client."""
    unknown = (
        requests.gate.unknown_topics(request) if request.api_version >= _TOPIC_IDS_FROM else []
    )
    if unknown:
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, api_version=_METADATA_VERSION
        )
    return None if requests.identity.authenticated else MetadataRequest(topics=[], api_version=1)


def _question_answered(item: Item, requests: Requests, answer: Answer, frame: memoryview) -> None:
    """Let the request be validated for which the broker was asked, once its answer is read."""
    requests.effects.append(MetadataQuestion(frame[4:], answer.version, item))


def validate_asked(requests: Requests, item: Item) -> bool:
    """Validate a request for which the broker was asked; return whether it may go on."""
    if item not in requests.outbox or item.request is None:
        return False  # the session has ended meanwhile
    item.verdict = requests.gate.validate(
        item.request,
        requests.identity.sender,
        inline=False,
        principal=requests.identity.facts.principal,
        account=requests.identity.account,
        share=requests.identity.share,
    )
    if item.verdict.done:
        item.waits = False
    else:
        requests.effects.append(Job(requests.identity, item, item.request, item.verdict))
    return not item.waits


def _lower(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    """Return the broker's answer in the version of an old request."""
    response = ProduceResponseView(frame[4:], OLDEST_PRODUCE)
    return lower(response, answer.version, correlation_id=answer.correlation_id)


# ---- denied requests -----------------------------------------------------------------------------


def refuse_denied(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int
) -> bool:
    """Answer a request that is denied to its client; return whether it was. Raises ProtocolError.

    A request that comes before the broker has authenticated the client ends the connection: clients
    wait for that.
    """
    if (deny_list := requests.proxy.deny_list) is None:  # a reload has removed it
        return False
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
    denied = requests.counters.requests_denied
    denied[key] = denied.get(key, 0) + 1
    facts, inter_broker = requests.identity.facts, why == "inter-broker"
    requests.effects.append(
        Denied(facts.listener, facts.client, None, facts.principal, key, version, inter_broker)
    )
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
        most = requests.limits.max_partitions_per_request
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
        self._most = requests.limits.max_partitions_per_request
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


_HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.API_VERSIONS: _versions,
    ApiKey.SASL_HANDSHAKE: _handshake,
    ApiKey.SASL_AUTHENTICATE: _authenticate,
}
