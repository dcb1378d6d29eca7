"""Find out what listens on an address: Kafka, TLS, HTTP, something else, or nothing.

ApiVersions                          -> Kafka, an alert of TLS, HTTP's 400, other bytes
no answer to it: TLS ClientHello     -> TLS
                 GET / HTTP/1.0      -> HTTP
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable
from typing import Final, Literal, NamedTuple

from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.proxy.cluster.endpoints import problem_of
from batchval.proxy.cluster.metadata_client import is_tls

__all__ = ["Kind", "Probe", "http_at", "probe", "tls_at"]

#: ``plaintext``: Kafka without TLS where TLS was expected. ``untrusted``: a TLS handshake that one
#: side refused. ``silent``: closes connections without an answer.
Kind = Literal["kafka", "unreachable", "silent", "http", "tls", "plaintext", "untrusted", "other"]

_CORRELATION: Final = 0x6261_7463
_MAX_ANSWER_BYTES: Final = 1 << 20
_GET: Final = b"GET / HTTP/1.0\r\n\r\n"
#: Reasons of OpenSSL for bytes that are not TLS's.
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "UNEXPECTED_EOF",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH",
    "HTTP",
)


class Probe(NamedTuple):
    """The result of a probe. ``reason``: why nothing can be reached, or what it answered."""

    kind: Kind
    reason: str = ""


async def probe(address: tuple[str, int], tls: ssl.SSLContext | None, timeout_s: float) -> Probe:
    """Return what listens on ``address``, after at most ``timeout_s``.

    ``tls`` is the context of connections to brokers, None for plaintext. The probe asks for
    ApiVersions, as each client does first; only where no answer of Kafka comes within half of the
    time, it tries TLS and HTTP.
    """
    asked = asyncio.ensure_future(_kafka(address, tls))
    others: list[asyncio.Future[Probe | None]] = []
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait((asked,), timeout=timeout_s / 2)
            if asked.done() and (found := asked.result()) is not None:
                return found
            others = [asyncio.ensure_future(one) for one in _guesses(address, tls)]
            for done in asyncio.as_completed([asked, *others]):
                if (found := await done) is not None:
                    return found
    except TimeoutError:
        return Probe("unreachable", f"no answer within {timeout_s:g} s")
    finally:
        for task in (asked, *others):
            task.cancel()
        await asyncio.gather(asked, *others, return_exceptions=True)
    return Probe("silent", "it closes connections without an answer")


def _guesses(address: tuple[str, int], tls: ssl.SSLContext | None) -> list[Awaitable[Probe | None]]:
    if tls is None:
        return [tls_at(address), http_at(address, None)]
    return [_plaintext(address), http_at(address, None), http_at(address, tls)]


async def _kafka(address: tuple[str, int], tls: ssl.SSLContext | None) -> Probe | None:
    """Ask for ApiVersions. None: the peer answered nothing, or what it speaks is not TLS."""
    request = b"".join(ApiVersionsRequest(api_version=0).encode(_CORRELATION, "batchval-gate"))
    try:
        first = await _answer(address, tls, request)
    except ssl.SSLCertVerificationError as error:
        return Probe("untrusted", error.verify_message)
    except ssl.SSLError as error:
        return None if _is_not_tls(error) else Probe("untrusted", _words(error))
    except ConnectionResetError:
        return None
    except UnicodeError:
        return Probe("unreachable", "this is not a host name")
    except OSError as error:
        return Probe("unreachable", problem_of(error))
    return _classified(first)


def _classified(first: bytes) -> Probe | None:
    if not first:
        return None
    if first.startswith(b"HTTP/"):
        return Probe("http")
    if is_tls(first):
        return Probe("tls")
    stated = int.from_bytes(first[:4], "big", signed=True)
    if (
        len(first) >= 8
        and 4 <= stated <= _MAX_ANSWER_BYTES
        and int.from_bytes(first[4:8], "big") == _CORRELATION
    ):
        return Probe("kafka")
    return Probe("other", repr(first[:16]))


async def _plaintext(address: tuple[str, int]) -> Probe | None:
    """Ask for ApiVersions without TLS."""
    found = await _kafka(address, None)
    return (
        Probe("plaintext") if found == Probe("kafka") else found if found == Probe("http") else None
    )


async def http_at(address: tuple[str, int], tls: ssl.SSLContext | None) -> Probe | None:
    """Ask for a page: Kafka brokers close the connection, as its length would be too large."""
    with contextlib.suppress(OSError, UnicodeError):
        if (await _answer(address, tls, _GET)).startswith(b"HTTP/"):
            return Probe("http")
    return None


async def tls_at(address: tuple[str, int]) -> Probe | None:
    """Begin a TLS handshake, whatever the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(*address, ssl=context)
    except ssl.SSLError as error:
        return None if _is_not_tls(error) else Probe("tls")
    except (OSError, UnicodeError):
        return None
    writer.transport.abort()
    return Probe("tls")


async def _answer(address: tuple[str, int], tls: ssl.SSLContext | None, request: bytes) -> bytes:
    """Send bytes; return the first 16 of the answer, none where the peer closes."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls, limit=1 << 16)
    try:
        writer.write(request)
        received = b""
        while len(received) < 16 and (more := await reader.read(16 - len(received))):
            received += more
            if len(received) >= 5 and _is_not_kafka(received):
                break
        return received
    finally:
        writer.transport.abort()


def _is_not_kafka(first: bytes) -> bool:
    """Return whether the answer cannot be the start of one of Kafka's."""
    return not 4 <= int.from_bytes(first[:4], "big", signed=True) <= _MAX_ANSWER_BYTES


def _is_not_tls(error: ssl.SSLError) -> bool:
    return any(word in (error.reason or "") for word in _NOT_TLS) or isinstance(
        error, ssl.SSLEOFError
    )


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "the handshake failed").lower().replace("_", " ")
