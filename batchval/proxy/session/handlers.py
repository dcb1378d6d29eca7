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
    all others         pass unchanged

A handler takes a request and gives its answer a place in the session's queue; ``respond`` makes of
the broker's answer what the client gets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from batchval.protocol.apis import ApiKey
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
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, lower
from batchval.proxy.session import version_bridge
from batchval.proxy.session.requests import (
    Answer,
    Item,
    Queue,
    Respond,
    forward_validated,
    pass_on,
    rewrite,
)
from batchval.proxy.session.sasl_exchange import TOKENS, UNSUPPORTED_SASL_MECHANISM

__all__ = [
    "answer_versions",
    "of",
    "produce",
    "token",
    "wants_no_answer",
]

UNSUPPORTED_VERSION: Final = 35
#: The version of the gate's own Metadata requests: from 12 on they ask for topic ids (KIP-516).
_METADATA_VERSION: Final = 12
_TOPIC_IDS_FROM: Final = 13  # of Produce
#: The oldest version of Produce that Kafka 4 knows: older ones go on as this one.
OLDEST_PRODUCE: Final = PRODUCERS[ApiKey.PRODUCE].to
_CLIENT_ID: Final = "batchval-gate"

Handler = Callable[[Queue, memoryview, int, int, int, Chunks], None]


def of(key: int, version: int, changed_from: int, raised: Raised | None) -> Handler:
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
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    session.requests.forward(frame, Answer(correlation_id, key, version, pass_on), out)


def _addresses(
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    session.requests.forward(frame, Answer(correlation_id, key, version, rewrite), out)


def _is_own(session: Queue, frame: memoryview) -> bool:
    """End the session if the gate itself sent this request (its upstream is the gate)."""
    size = int.from_bytes(frame[12:14], "big", signed=True)
    client_id = bytes(frame[14 : 14 + max(0, size)]).decode(errors="replace")
    if not session.proxy.discovery.is_own_request(client_id):
        return False
    session.abort("own_request")
    return True


def _metadata(
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    if _is_own(session, frame):
        return
    session.requests.forward(frame, Answer(correlation_id, key, version, _learn_topics), out)


def _learn_topics(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    session.proxy.learn_topics(frame[4:], answer.version)
    return rewrite_addresses(
        frame[4:],
        answer.key,
        answer.version,
        session.replace,
        correlation_id=answer.correlation_id,
        known=session.written_brokers(answer.version),
    )


# ---- ApiVersions ---------------------------------------------------------------------------------


def _versions(
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    if _is_own(session, frame):
        return
    session.identity.introduce(frame, version)
    session.requests.forward(frame, Answer(correlation_id, key, version, _intersect), out)


def _intersect(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    body = frame[4:]
    try:
        return session.proxy.intersected(
            body, answer.version, answer.correlation_id, session.raised
        )
    except ProtocolError:
        # an error in a form of its own (librdkafka's mock cluster): its code is enough for clients
        error_code = int.from_bytes(body[4:6], "big", signed=True)
        if error_code <= 0:
            raise
        return ApiVersionsResponse(error_code=error_code).encode(answer.correlation_id, 0)


def answer_versions(session: Queue, correlation_id: int) -> None:
    """Answer an unknown version of ApiVersions, as a broker that does not know it (KIP-511)."""
    first, last = session.proxy.carried[ApiKey.API_VERSIONS]
    keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)]
    answer = Answer(correlation_id, ApiKey.API_VERSIONS, 0, None)
    response = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=keys)
    session.requests.place(answer)
    session.answer_here(answer, response.encode(correlation_id, 0))


# ---- SASL ----------------------------------------------------------------------------------------


def _handshake(
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    """Note the mechanism: it says how many tokens without headers come after version 0."""
    _, request = SaslHandshakeRequest.parse(frame[4:])
    if version == 0 and request.mechanism not in TOKENS:
        answer = Answer(correlation_id, key, version, None)
        response = SaslHandshakeResponse(UNSUPPORTED_SASL_MECHANISM, sorted(TOKENS))
        session.requests.place(answer)
        session.answer_here(answer, response.encode(correlation_id, version))
        session.end(
            "sasl_mechanism",
            f"mechanism {request.mechanism[:100]}, expected {', '.join(sorted(TOKENS))}",
        )
        return
    session.sasl.begin(request.mechanism)
    session.identity.authentication_begins()
    session.requests.forward(frame, Answer(correlation_id, key, version, _shaken), out)
    if version == 0:
        session.wait_for_handshake()


def _shaken(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    with contextlib.suppress(ProtocolError):  # the client gets what cannot be read as it is
        response = SaslHandshakeResponse.decode(frame[4:], answer.version)
        if response.error_code:
            session.sasl.refused(response.error_code)
        elif answer.version == 0:
            session.sasl.accepted_0()
    if answer.version == 0:
        session.handshake_answered()
    return pass_on(session, answer, frame)


def token(session: Queue, frame: memoryview, out: Chunks) -> None:
    """Pass a token of SaslHandshake 0 on: no header, no correlation id."""
    answer = Answer(0, -1, 0, _token_answered)
    answer.facts = session.sasl.client_token(frame[4:])
    session.requests.place(answer)
    if session.requests.outbox:
        session.requests.put(Item(frame, answer))
    else:
        out.append(frame)


def _token_answered(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    if session.sasl.broker_token():
        session.identity.authenticated_as(answer.facts.principal)
    return [frame]


def _authenticate(
    session: Queue, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    _, request = SaslAuthenticateRequest.parse(frame[4:])
    answer = Answer(correlation_id, key, version, _authenticated)
    answer.facts = session.sasl.client_token(memoryview(request.auth_bytes))
    session.requests.forward(frame, answer, out)


def _authenticated(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    with contextlib.suppress(ProtocolError):  # as above
        response = SaslAuthenticateResponse.decode(frame[4:], answer.version)
        if response.error_code:
            session.sasl.refused(response.error_code)
        elif answer.facts.is_complete(bytes(response.auth_bytes)):
            session.identity.authenticated_as(answer.facts.principal)
    return pass_on(session, answer, frame)


# ---- Produce -------------------------------------------------------------------------------------


def produce(
    session: Queue,
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
    raised = session.raised.get(ApiKey.PRODUCE)
    oldest = OLDEST_PRODUCE if raised is None else raised.oldest
    request = ProduceRequestView(
        frame[4:], max_partitions=session.limits.max_partitions, oldest=oldest
    )
    session.counters.produce_requests_total += 1
    answer = None
    if request.expects_response:
        respond: Respond = _lower
        if version >= OLDEST_PRODUCE:
            respond = rewrite if may_hold_addresses(ApiKey.PRODUCE, version) else pass_on
        answer = Answer(correlation_id, ApiKey.PRODUCE, version, respond)
    question = None
    if version >= _TOPIC_IDS_FROM or not session.authenticated:
        question = _question(session, request)
    if question is not None:
        item = Item(frame, answer, request, waits=True)
        asked = Answer(0, ApiKey.METADATA, question.api_version, partial(_question_answered, item))
        pieces = question.encode(0, _CLIENT_ID)
        session.requests.forward(memoryview(bytearray(b"".join(pieces))), asked, out, is_own=True)
    if answer is not None:  # as ``Requests.place``
        answer.taken_ns = session.requests.fast_path.taken_ns
        session.requests.answers.append(answer)
    if question is not None:
        session.requests.put(item)
        return
    verdict = session.gate.validate(
        request,
        session.sender,
        decision,
        inline=inline,
        principal=session.facts.principal,
        account=session.account,
        share=session.share,
    )
    if verdict.done and not session.requests.outbox:
        forward_validated(session, frame, answer, request, verdict, out)
        return
    item = Item(frame, answer, request, verdict, waits=not verdict.done)
    session.requests.put(item)
    if item.waits:
        session.proxy.validation.submit(session, item, request, verdict)


def wants_no_answer(frame: memoryview, max_partitions: int) -> bool:
    """Return whether a request is a well-formed Produce with acks=0."""
    if frame[4:6] != int(ApiKey.PRODUCE).to_bytes(2, "big"):
        return False
    try:
        request = ProduceRequestView(frame[4:], max_partitions=max_partitions, oldest=0)
    except ProtocolError:
        return False
    return not request.expects_response


def _question(session: Queue, request: ProduceRequestView) -> MetadataRequest | None:
    """Return what to ask the broker before validating: topic ids, or if it knows the client."""
    unknown = session.gate.unknown_topics(request) if request.api_version >= _TOPIC_IDS_FROM else []
    if unknown:
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, api_version=_METADATA_VERSION
        )
    return None if session.authenticated else MetadataRequest(topics=[], api_version=1)


def _question_answered(item: Item, session: Queue, answer: Answer, frame: memoryview) -> None:
    """Validate the request for which the broker was asked."""
    session.proxy.learn_topics_then(
        frame[4:], answer.version, partial(_validate_item, session, item)
    )


def _validate_item(session: Queue, item: Item) -> None:
    if item not in session.requests.outbox or item.request is None:
        return  # the session has ended meanwhile
    item.verdict = session.gate.validate(
        item.request,
        session.sender,
        inline=False,
        principal=session.facts.principal,
        account=session.account,
        share=session.share,
    )
    if item.verdict.done:
        item.waits = False
        session.send_ready()
    else:
        session.proxy.validation.submit(session, item, item.request, item.verdict)


def _lower(session: Queue, answer: Answer, frame: memoryview) -> Chunks:
    """Return the broker's answer in the version of an old request."""
    response = ProduceResponseView(frame[4:], OLDEST_PRODUCE)
    return lower(response, answer.version, correlation_id=answer.correlation_id)


_HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.API_VERSIONS: _versions,
    ApiKey.SASL_HANDSHAKE: _handshake,
    ApiKey.SASL_AUTHENTICATE: _authenticate,
}
