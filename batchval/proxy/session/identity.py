"""The identity of one session's client, from which the size of its requests and its APIs follow.

Where brokers require authentication, requests are limited until the broker has accepted the client;
while that is not known, large ones wait. The principal is that of the certificate or, once the
broker has accepted it, that of SASL.
"""

from __future__ import annotations

from typing import NamedTuple

from batchval.protocol.frames import FrameError
from batchval.proxy.session.sasl_exchange import SaslExchange
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import ANONYMOUS, Facts
from batchval.proxy.watch.clients import Software, software_of
from batchval.proxy.watch.senders import SenderTable, Share

__all__ = ["Authenticated", "Identity"]


class Authenticated(NamedTuple):
    """An effect for the session: the client has no limits of the unauthenticated any more.

    ``principal``  "" where only the broker knows; None where nobody has asked for it
    """

    principal: str | None = None


class Identity:
    """The identity of one session's client. It alone writes these.

    ``address``        its host
    ``name``           host and port
    ``sender``         the name that its claims are kept under
    ``facts``          what records and answers say of it
    ``account``        of its sender
    ``share``          of what its sender's work gets
    ``own_host``       of the gate, that the client has connected to
    ``software``       of its ApiVersions request
    ``sasl``           its SASL exchange with the broker
    ``authenticated``  whether its broker knows the client, or asks nobody
    ``is_unknown``     whether nobody has found out yet that brokers authenticate: large requests
                       wait until then
    """

    __slots__ = (
        "_is_named",
        "_senders",
        "account",
        "address",
        "authenticated",
        "facts",
        "is_unknown",
        "name",
        "own_host",
        "sasl",
        "sender",
        "share",
        "software",
    )

    def __init__(self, senders: SenderTable, listener_name: str, *, requires: bool | None) -> None:
        """Know nobody yet. ``requires``: whether brokers authenticate; None: not known yet."""
        self._senders = senders
        self.address, self.name = "unknown", "unknown:0"
        self.sender = self.own_host = ""
        self.facts = Facts("", self.name, ANONYMOUS, listener_name)
        self.account = senders.of(ANONYMOUS, self.address)
        self.share = Share()
        self.software = Software()
        self.sasl = SaslExchange()
        self.authenticated = not requires
        self.is_unknown = requires is None
        self._is_named = True  # the principal is that of ``facts``, and not about to change

    @property
    def principal(self) -> str | None:
        """Return the client's principal; None while it may change."""
        return self.facts.principal if self._is_named else None

    def connected(self, address: str, port: int) -> None:
        """Note where the client comes from."""
        self.address, self.name = address, f"{address}:{port}"
        self.account = self._senders.of(ANONYMOUS, address)

    def ready(self, sender: str, own_host: str, listener_name: str) -> None:
        """Note what its connection says, which is secured now where it has to be."""
        self.sender, self.own_host = sender, own_host
        self.facts = Facts(sender, self.name, ANONYMOUS, listener_name)

    def max_frame_bytes(self, limits: Limits) -> int:
        """Return the bytes that a request may have now."""
        most = limits.max_frame_bytes
        return most if self.authenticated else min(most, limits.max_unauthenticated_frame_bytes)

    def look(self, *, requires: bool | None) -> None:
        """Decide on a client that came before it was known whether brokers authenticate."""
        if requires is not None:
            self.authenticated = not requires
            self.is_unknown = False

    def why_not_read(self, error: FrameError) -> tuple[str, str]:
        """Return why a frame of the client cannot be read, and a detail."""
        if error.peer:
            return f"frame_{error.peer.lower()}", ""
        is_early = error.stated > error.limit and not self.authenticated
        detail = f"length {error.stated}, allowed 0 to {error.limit}"
        return "frame_unauthenticated" if is_early else "frame_size", detail

    def authenticate(self) -> Authenticated:
        """Lift the limits: the broker has accepted the client, or requires no authentication."""
        self.authenticated = True
        self.is_unknown = self.sasl.is_open = False
        return Authenticated()

    def authenticated_as(self, principal: str) -> Authenticated:
        """Note whom the broker has authenticated; "" where only the broker knows."""
        self.facts = self.facts._replace(principal=principal or ANONYMOUS)
        self.account = self._senders.of(self.facts.principal, self.address)
        self._is_named = True
        self.authenticate()
        return Authenticated(principal)

    def authentication_begins(self, mechanism: str) -> None:
        """Note the handshake that the client asks for: its principal may change."""
        self.sasl.begin(mechanism)
        self._is_named = False

    def introduce(self, frame: memoryview, version: int) -> None:
        """Note what an ApiVersions request says of the client's software."""
        self.software = software_of(frame, version) or self.software
        self.facts = self.facts._replace(software=" ".join(self.software).strip())
