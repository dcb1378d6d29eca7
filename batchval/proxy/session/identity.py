"""The identity of one session's client, from which the size of its requests and its APIs follow.

Where brokers require authentication, requests are limited until the broker has accepted the client;
while that is not known, large ones wait. The principal is that of the certificate or, once the
broker has accepted it, that of SASL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from batchval.protocol.old_versions import Raised
from batchval.proxy.cluster.discovery import Discovery
from batchval.proxy.session.connection_log import Connection, ConnectionLog
from batchval.proxy.session.connections import UNKNOWN
from batchval.proxy.session.deny_list import DenyList
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.sasl_exchange import SaslExchange
from batchval.proxy.session.session_states import SessionEvent
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import ANONYMOUS
from batchval.proxy.watch.clients import software_of
from batchval.proxy.watch.senders import Sender, SenderTable

__all__ = ["Identity", "Knowing"]


class Knowing(Protocol):
    """The facts of the brokers, and the denied requests of the listener."""

    deny_list: DenyList | None
    discovery: Discovery
    senders: SenderTable

    def routes_for(
        self,
        denied: frozenset[int],
        raised: Mapping[int, Raised],
        shared: frozenset[int] = frozenset(),
    ) -> Routes: ...


class Identified(Connection, Protocol):
    """The part of a session that its identity uses.

    ``account``        of its sender
    ``authenticated``  whether its broker knows the client, or asks nobody
    ``is_unknown``     whether nobody has found out yet that brokers authenticate: large requests
                       wait until then
    ``guarded``        APIs that some clients may not use
    """

    address: str
    account: Sender
    authenticated: bool
    is_unknown: bool
    lifetime: Lifetime
    guarded: frozenset[int]
    raised: Mapping[int, Raised]
    limits: Limits
    log: ConnectionLog
    sasl: SaslExchange

    @property
    def proxy(self) -> Knowing: ...
    def hold(self, why: int) -> None: ...
    def release(self, why: int) -> None: ...
    def end_when_taken(self, why: str, detail: str = "") -> None: ...


class Identity:
    """The identity of one session's client, in ``facts`` of the session."""

    __slots__ = ("_is_named", "_session")

    def __init__(self, session: Identified) -> None:
        self._session = session
        self._is_named = True  # the principal is that of ``facts``, and not about to change

    def most_of_frame(self) -> int:
        """Return the bytes that a request may have now."""
        limits = self._session.limits
        most = limits.max_frame_bytes
        return (
            most
            if self._session.authenticated
            else min(most, limits.max_unauthenticated_frame_bytes)
        )

    def look(self) -> None:
        """Decide on a client that came before it was known whether brokers authenticate."""
        session = self._session
        requires = session.proxy.discovery.requires_authentication
        most = session.limits.max_unauthenticated_frame_bytes
        is_large = session.client.splitter.partial_size > most
        if requires is False:
            self.authenticate()
        elif requires is None:
            if is_large:
                session.hold(UNKNOWN)
        else:
            session.authenticated = session.is_unknown = False
            session.client.splitter.max_frame_bytes = self.most_of_frame()
            session.release(UNKNOWN)
            if is_large:
                size = session.client.splitter.partial_size
                session.end_when_taken(
                    "frame_unauthenticated", f"length {size}, allowed 0 to {most}"
                )

    def authenticate(self) -> None:
        """Lift the limits: the broker has accepted the client, or requires no authentication."""
        session = self._session
        session.authenticated = True
        session.is_unknown = session.sasl.is_open = False
        session.release(UNKNOWN)
        session.client.splitter.max_frame_bytes = self.most_of_frame()
        if session.guarded:
            self.follow_deny_list()
        session.lifetime.move(SessionEvent.AUTHENTICATED)

    def authenticated_as(self, principal: str) -> None:
        """Note whom the broker has authenticated; "" where only the broker knows."""
        session = self._session
        session.facts = session.facts._replace(principal=principal or ANONYMOUS)
        session.account = session.proxy.senders.of(session.facts.principal, session.address)
        self._is_named = True
        if session.log.is_debug:
            mechanism = session.sasl.mechanism or "client certificate"
            session.log.debug(
                session, "client authenticated", mechanism=mechanism, principal=principal or None
            )
        self.authenticate()

    def authentication_begins(self) -> None:
        """Note that the client's principal may change."""
        self._is_named = False
        if self._session.guarded:
            self.follow_deny_list()

    def introduce(self, frame: memoryview, version: int) -> None:
        """Note what an ApiVersions request says of the client's software."""
        session = self._session
        seen = session.seen_client
        seen.software = software_of(frame, version) or seen.software
        session.facts = session.facts._replace(software=" ".join(seen.software).strip())

    def follow_deny_list(self) -> None:
        """Choose the routes of the fast path by the client's principal: without the APIs that are
        denied to it; while its principal may change, without all that are denied to anybody.
        """
        session = self._session
        deny_list = session.proxy.deny_list
        if deny_list is None:
            if session.guarded:
                session.guarded = frozenset()
                session.fast_path.route(session.proxy.routes_for(session.guarded, session.raised))
            return
        session.guarded = deny_list.guarded
        principal = session.facts.principal if self._is_named else None
        denied, shared = deny_list.denied_to(principal), deny_list.shared_of(principal)
        session.fast_path.route(session.proxy.routes_for(denied, session.raised, shared))
