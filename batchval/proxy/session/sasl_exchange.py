"""The progress of a client's SASL exchange with the broker, and the client's principal.

    SaslHandshake 0   the tokens come as frames without a header: PLAIN one each way, SCRAM two
    SaslHandshake 1   the tokens come in SaslAuthenticate requests

The gate carries the exchange and takes no part in it. It has to know where tokens of version 0 end,
because what comes after the last one are requests, which are validated.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from batchval.network.errors import name_of

__all__ = ["TOKENS", "UNSUPPORTED_SASL_MECHANISM", "Claimed", "SaslExchange"]

UNSUPPORTED_SASL_MECHANISM: Final = 33

#: Tokens that a client sends after SaslHandshake 0; the broker sends as many.
TOKENS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}

_MAX_NAME_LENGTH: Final = 249


class SaslExchange:
    """The SASL exchange of one session; a client may authenticate again later (KIP-368).

    ``tokens_left``  frames without a header that the client still sends
    ``mechanism``    that the client has asked for last
    ``is_open``      an exchange has begun, and the broker has not accepted its last token
    ``failure``      what the broker has answered to an exchange that failed; "" where none has
    """

    __slots__ = ("_answers_left", "_principal", "failure", "is_open", "mechanism", "tokens_left")

    def __init__(self) -> None:
        self.mechanism = self._principal = self.failure = ""
        self.tokens_left = self._answers_left = 0
        self.is_open = False

    def begin(self, mechanism: str) -> None:
        """Note the handshake that the client asks for."""
        self.mechanism = mechanism
        self._principal = self.failure = ""
        self.is_open = True

    def accepted_0(self) -> None:
        """Note that the broker has accepted a handshake of version 0."""
        self.tokens_left = self._answers_left = TOKENS[self.mechanism]

    def client_token(self, token: memoryview) -> Claimed:
        """Note one token of the client's; return whom it claims to be.

        That is true once the broker has accepted this token. By then the client may have begun
        another exchange.
        """
        self.tokens_left = max(0, self.tokens_left - 1)
        if not self._principal:
            self._principal = _principal_in(self.mechanism, bytes(token[:4096]))
        return Claimed(self.mechanism, self._principal)

    def refused(self, error_code: int) -> None:
        """Note that the broker has answered with an error."""
        parts = (self.mechanism[:_MAX_NAME_LENGTH], self._principal, name_of(error_code))
        self.failure = ", ".join(filter(None, parts))

    def broker_left(self) -> None:
        """Note that the broker closed the connection: SaslHandshake 0 has no other refusal."""
        if self._answers_left > self.tokens_left:
            self.failure = ", ".join(filter(None, (self.mechanism, self._principal)))

    def broker_token(self) -> bool:
        """Note one token of the broker's after SaslHandshake 0; return whether it was the last."""
        self._answers_left -= 1
        return self._answers_left == 0


class Claimed(NamedTuple):
    """The name that a client's token claims.

    ``principal``  as Kafka writes it; "" where only the broker knows
    """

    mechanism: str
    principal: str

    def is_complete(self, auth_bytes: bytes) -> bool:
        """Return whether a SaslAuthenticate answer without an error ends the exchange with success.

        PLAIN and OAUTHBEARER end with empty bytes, SCRAM with the server's signature (RFC 5802). Of
        other mechanisms this does not tell: any later answer of the broker does.
        """
        if self.mechanism.startswith("SCRAM-"):
            return auth_bytes.startswith(b"v=")
        return self.mechanism in ("PLAIN", "OAUTHBEARER") and not auth_bytes


def _principal_in(mechanism: str, token: bytes) -> str:
    """Return the principal that a client's first token names; "" where none can be read."""
    name = b""
    if mechanism == "PLAIN":  # RFC 4616: authzid NUL authcid NUL passwd
        parts = token.split(b"\0")
        name = parts[1] if len(parts) == 3 else b""
    elif mechanism.startswith("SCRAM-"):  # RFC 5802: n,[a=authzid],n=name,r=nonce
        parts = token.split(b",")
        if b"tokenauth=true" in parts:  # KIP-48: the name is a token's, its owner the principal
            return ""
        for part in parts:
            if part.startswith(b"n="):
                name = part[2:].replace(b"=2C", b",").replace(b"=3D", b"=")
                break
    return f"User:{name.decode('utf-8', 'replace')[:_MAX_NAME_LENGTH]}" if name else ""
