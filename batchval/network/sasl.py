"""SASL on a fresh connection: PLAIN (RFC 4616) and SCRAM (RFC 5802), in Kafka's SaslAuthenticate.

    PLAIN   NUL username NUL password
    SCRAM   n,,n=username,r=nonce → r=…,s=salt,i=iterations → c=biws,r=…,p=proof → v=signature

As in Kafka, names and passwords are UTF-8 without SASLprep.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from typing import Final

from batchval.network.connection import Connection
from batchval.network.errors import AuthenticationError, name_of
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["ScramClient", "authenticate"]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: Kafka's least; and what a broker may make us compute
_ITERATIONS: Final = range(4_096, 1_000_001)
_MAX_DIGITS: Final = 10  # Python converts 4,300 at most


class ScramClient:
    """One SCRAM exchange. Raises AuthenticationError where the server breaks the protocol or does
    not know the password.
    """

    def __init__(
        self, mechanism: str, username: str, password: str, nonce: str | None = None
    ) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce or base64.b64encode(os.urandom(24)).decode()
        self._first_bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the client's proof, in answer to the server's first message."""
        attributes = _attributes(server_first)
        nonce, iterations = attributes.get("r", ""), attributes.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError("SCRAM: the broker's nonce does not go on from ours")
        if (
            not iterations.isascii()
            or not iterations.isdigit()
            or len(iterations) > _MAX_DIGITS
            or int(iterations) not in _ITERATIONS
        ):
            raise AuthenticationError(f"SCRAM: the broker asks for {iterations[:20]!r} iterations")
        try:
            salt = base64.b64decode(attributes.get("s", ""), validate=True)
        except ValueError:
            raise AuthenticationError("SCRAM: the broker's salt is not valid base64") from None
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        bare = f"c=biws,r={nonce}"
        message = b",".join((self._first_bare.encode(), server_first, bare.encode()))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Verify that the server knows the password too. Raises AuthenticationError."""
        attributes = _attributes(server_final)
        if "e" in attributes:
            raise AuthenticationError("SCRAM: the broker refuses these credentials")
        try:
            signature = base64.b64decode(attributes.get("v", ""), validate=True)
        except ValueError:
            signature = b""
        if not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationError("SCRAM: the broker does not know the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise AuthenticationError("SCRAM: the broker's message is not UTF-8") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}


async def authenticate(
    connection: Connection, mechanism: str, username: str, password: str
) -> None:
    """Authenticate a new connection with SASL.

    Raises AuthenticationError (its message has no credentials), NetworkError.
    """
    handshake: SaslHandshakeResponse = await connection.request(
        SaslHandshakeRequest(mechanism, api_version=1)
    )
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms)
        raise AuthenticationError(
            f"the broker refused SASL mechanism {mechanism} ({name_of(handshake.error_code)}): "
            f"it offers {offered or 'none'}"
        )
    if mechanism == "PLAIN":
        await _exchange(connection, f"\0{username}\0{password}".encode())
        return
    scram = ScramClient(mechanism, username, password)
    answer = await _exchange(connection, scram.first())
    # a broker may demand a million iterations: seconds of CPU
    proof = await asyncio.to_thread(scram.final, answer)
    scram.verify(await _exchange(connection, proof))


async def _exchange(connection: Connection, token: bytes) -> bytes:
    answer: SaslAuthenticateResponse = await connection.request(
        SaslAuthenticateRequest(token, api_version=1)
    )
    if answer.error_code:
        name = name_of(answer.error_code)
        raise AuthenticationError(f"the broker refuses these credentials: {name}")
    return bytes(answer.auth_bytes)
