"""Log lines about connections: one line for each that the gate ended, and with level debug what
comes before.

    WARNING connection ended listener=edge client=10.0.0.7:51324 client_id=shop … reason=frame_http

The facts stand in the order of ``_facts``. What a client chose is shortened here and escaped by the
formatter. Nothing of a record or of what SASL carried is ever in a line. A line is made from the
session only where it is written: a flood costs a look at the clock for each connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from batchval.protocol.apis import APIS
from batchval.protocol.old_versions import CONSUMERS, PRODUCERS
from batchval.proxy.kit.end_reasons import CLIENT, EndReason, reason_of
from batchval.proxy.kit.sockets import transferred
from batchval.proxy.session.connections import Connections
from batchval.proxy.session.identity import Identity
from batchval.proxy.session.requests import Requests, facts_of
from batchval.proxy.settings.config import Log
from batchval.proxy.settings.options import ANONYMOUS
from batchval.proxy.watch.audit_log import MAX_LINES_AT_ONCE, short
from batchval.proxy.watch.clients import SeenClient, pair_of
from batchval.proxy.watch.metrics import Family
from batchval.proxy.watch.senders import LineShares, SenderTable
from batchval.token_bucket import TokenBucket

__all__ = ["ApiKeyAndVersion", "Connection", "ConnectionLog", "upgrade_advice", "why_broker_left"]

#: Lines of level debug in a second: one takes the event loop 30 microseconds.
DEBUG_LINES: Final = 500
_MAX_DETAIL_LENGTH: Final = 300
#: The word of the setting ``bridge`` that serves the old versions of an API.
_BRIDGES = {int(key): "consumers" for key in CONSUMERS} | {
    int(key): "producers" for key in PRODUCERS
}

#: API key and version.
ApiKeyAndVersion = tuple[int, int]

log = logging.getLogger("batchval.proxy")


class Connection(NamedTuple):
    """The parts of a session that a log line describes.

    ``opened``  when the client was accepted, in seconds of the loop's clock; ``now``: the time
    """

    identity: Identity
    seen: SeenClient
    connections: Connections
    requests: Requests
    opened: float
    now: float


class ConnectionLog:
    """A logger of ended connections: writes at most ``per_second`` lines a second, and counts the
    others.

    The first of a reason after each ``flush`` is written in any case, so that a flood for one
    reason hides no other reason. A sender that has had no line lately gets one, too.

    ``is_debug``  whether lines of level debug are written; known again at each ``flush``
    ``left_out``  lines that were left out, by reason
    """

    def __init__(
        self,
        per_second: int = Log().connections_per_second,
        clock: Callable[[], float] = time.monotonic,
        senders: SenderTable | None = None,
    ) -> None:
        self.left_out: dict[str, int] = {}
        self.is_debug = log.isEnabledFor(logging.DEBUG)
        self._senders = SenderTable(clock=clock) if senders is None else senders
        self.bound(per_second)
        self._debug_tokens = TokenBucket(DEBUG_LINES, MAX_LINES_AT_ONCE, clock)
        self._new: dict[str, int] = {}  # left out since the last flush
        self._written: set[str] = set()  # reasons since the last flush

    def bound(self, per_second: int) -> None:
        """Write so many lines a second from now on."""
        self._lines = LineShares(
            "connections", per_second, min(per_second, MAX_LINES_AT_ONCE), self._senders
        )

    def ended(
        self,
        connection: Connection,
        why: str,
        detail: str = "",
        request: ApiKeyAndVersion | None = None,
    ) -> None:
        """Write why a connection ends. ``request`` is the one that is the cause, if one is."""
        reason = reason_of(why)
        if self._may_write(why, reason, partial(_who, connection)):
            facts = _facts(connection, request)
            facts |= {
                "reason": why,
                "meaning": reason.meaning,
                "detail": short(detail, _MAX_DETAIL_LENGTH),
            }
            _write(reason.level, "connection ended", facts | _amounts(connection))

    def refused(self, listener: str, client: str, why: str) -> None:
        """Write that a connection was closed as soon as it was accepted."""
        reason = reason_of(why)
        if self._may_write(why, reason, lambda: (ANONYMOUS, client)):
            facts = {
                "listener": listener,
                "client": client,
                "reason": why,
                "meaning": reason.meaning,
            }
            _write(reason.level, "connection ended", facts)

    def closed_by_client(self, connection: Connection) -> None:
        """Write, with level debug, that the client has closed the connection."""
        if self.is_debug and self._may_write(CLIENT, reason_of(CLIENT), partial(_who, connection)):
            facts = _facts(connection, None) | {"requests": connection.seen.requests}
            _write(logging.DEBUG, "connection closed by the client", facts | _seconds(connection))

    def accepted(self, identity: Identity, transport: asyncio.Transport) -> None:
        """Write, with level debug, that a connection was accepted."""
        tls = transport.get_extra_info("ssl_object")
        cipher = None if tls is None else tls.cipher()
        facts = {} if tls is None else {"tls": tls.version(), "cipher": cipher and cipher[0]}
        self.debug(identity, "connection accepted", **facts)

    def named(self, identity: Identity, client_id: str | None) -> None:
        """Write, with level debug, that the next requests have this client id."""
        if self.is_debug:
            self.debug(identity, "first request of a client id", client_id=client_id)

    def authenticated(self, identity: Identity, principal: str) -> None:
        """Write, with level debug, whom the broker or a certificate has authenticated."""
        mechanism = identity.sasl.mechanism or "client certificate"
        self.debug(
            identity, "client authenticated", mechanism=mechanism, principal=principal or None
        )

    def debug(self, identity: Identity, event: str, **facts: object) -> None:
        """Write what happened to a connection. Ask ``is_debug`` first: a call costs more."""
        if self._debug_tokens.take():
            found = {
                key: short(fact) if isinstance(fact, str) else fact for key, fact in facts.items()
            }
            _write(
                logging.DEBUG,
                event,
                {"listener": identity.facts.listener, "client": identity.name} | found,
            )
        else:
            self._leave_out("debug")

    def _may_write(self, why: str, reason: EndReason, who: Callable[[], tuple[str, str]]) -> bool:
        """Return whether a line may be written now; else count it, unless the level hides it.

        ``who`` returns the principal and the client.
        """
        if not log.isEnabledFor(reason.level):
            return False
        if reason.level == logging.DEBUG:
            may = self._debug_tokens.take()
        else:
            may = self._lines.take(*who()) or why not in self._written
        if not may:
            self._leave_out(why)
            return False
        self._written.add(why)
        return True

    def _leave_out(self, why: str) -> None:
        self._new[why] = self._new.get(why, 0) + 1
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def flush(self) -> None:
        """Write how many lines were left out, if any were. Call it now and then, and at the end."""
        self.is_debug = log.isEnabledFor(logging.DEBUG)
        self._written.clear()
        if self._new:
            counts, self._new = self._new, {}
            facts = {
                "count": sum(counts.values()),
                "reasons": ",".join(f"{why}:{n}" for why, n in counts.items()),
            }
            log.warning("connections left out of the log", extra={"facts": facts})

    def families(self) -> Iterator[Family]:
        """Yield the metric of the lines that were left out."""
        samples = [((why,), count) for why, count in self.left_out.items()]
        text = "Ended connections without a log line, by reason; debug: lines of that level."
        yield Family("counter", "log_connections_left_out", text, ("reason",), samples)


def _who(connection: Connection) -> tuple[str, str]:
    """Return the principal and the client of a session."""
    return connection.identity.facts.principal, connection.identity.name


def _write(level: int, event: str, facts: Mapping[str, object]) -> None:
    log.log(
        level,
        event,
        extra={"facts": {key: fact for key, fact in facts.items() if fact not in (None, "")}},
    )


def _facts(connection: Connection, request: ApiKeyAndVersion | None) -> dict[str, object]:
    """Return who was connected, to which broker, and the request that matters."""
    identity, seen, broker = connection.identity, connection.seen, connection.connections.broker
    node_id = connection.requests.node_id
    seen.collect()
    key, version = request or _last_request(connection)
    return {
        "listener": connection.identity.facts.listener,
        "client": connection.identity.name,
        "client_id": None if seen.client_id is None else short(seen.client_id),
        "software": identity.software.name,
        "software_version": identity.software.version,
        "principal": short(identity.facts.principal),
        "broker": "bootstrap" if node_id is None else node_id,
        "broker_address": None if broker is None else broker.address,
        "api": None if key < 0 else APIS[key].name if key in APIS else key,
        "version": None if key < 0 else version,
    }


def _last_request(connection: Connection) -> ApiKeyAndVersion:
    """Return the oldest request that awaits its answer, else the last one; key -1: not known."""
    if connection.requests.answers:
        _, key, version = facts_of(connection.requests.answers[0])
        if key >= 0:
            return key, version
    last = connection.requests.fast_path.last
    return (-1, 0) if last < 0 else pair_of(last)


def _amounts(connection: Connection) -> dict[str, object]:
    """Return what the kernel has counted of the connection so far, with what TLS adds."""
    received, sent = transferred(connection.connections.client.transport)
    amounts: dict[str, object] = {
        "received": received,
        "sent": sent,
        "requests": connection.seen.requests,
    }
    return amounts | _seconds(connection)


def _seconds(connection: Connection) -> dict[str, object]:
    return {"seconds": round(max(0.0, connection.now - connection.opened), 3)}


def why_broker_left(connection: Connection) -> tuple[str, str, ApiKeyAndVersion | None]:
    """Return why the broker ended the connection, a detail, and the request that caused it."""
    sasl, requests = connection.identity.sasl, connection.requests
    broker = connection.connections.broker
    problem = "" if broker is None else broker.problem
    sasl.broker_left()
    if sasl.failure:
        return "authentication_failed", sasl.failure, None
    if not requests.are_awaited and not requests.is_busy:
        return "upstream_closed", problem, None
    if requests.answers:
        _, key, version = facts_of(requests.answers[0])
        waiting = len(requests.answers)
        rejected = connection.seen.rejected((key, version), waiting, requests.raised)
        if rejected is not None:
            return "version_too_old", upgrade_advice(rejected[0]), rejected
    return "upstream_lost", problem, None


def upgrade_advice(key: int) -> str:
    """Return which versions of an API Kafka 4 serves, and what serves older ones."""
    api, bridge = APIS[key], _BRIDGES.get(key)
    text = f"Kafka 4 serves {api.name} {api.min_version} and later (KIP-896): upgrade the client"
    return text if bridge is None else f"{text}, or set bridge: {bridge}"
