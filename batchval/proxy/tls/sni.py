"""Choose the broker of a TLS client by the server name in its ClientHello, before any answer.

A client without a known name gets a TLS alert and is counted as a failed handshake:

    sni_missing    no server name (missing_extension, RFC 8446, 4.4.2.2)
    sni_unknown    a name that is neither the bootstrap name nor a broker's (unrecognized_name)
    malformed      a ClientHello that cannot be read (decode_error)

``server_name_of`` reads the first TLS record of a client (RFC 8446, 4.1.2; RFC 6066, section 3):

    record      type:1 version:2 length:2
    handshake   type:1 length:3
    hello       version:2 random:32
                session id   size:1 …
                ciphers      size:2 …
                compression  size:1 …
                extensions   size:2, each of them type:2 size:2 …
    server_name (type 0)     size:2, then type:1 (0, host name) size:2 name

It is read before OpenSSL gets the record, so that a client with an unknown name costs no signature.
Each ClientHello has the name, also one that resumes a session.
"""

from __future__ import annotations

import struct
from typing import Final

from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.tls.handshakes import HandshakeError

__all__ = ["node_asked_for", "server_name_of"]

_HEADERS: Final = 9

_FIXED: Final = 34  # version and random

_SERVER_NAME: Final = 0

_HOST_NAME: Final = 0

_MAX_NAME_LENGTH: Final = 255  # of OpenSSL too

_NAME_HEADERS: Final = 5

#: Extensions that are read: fewer than 100 are registered, a record can hold 4,000 empty ones.
MAX_EXTENSIONS: Final = 128

_extension = struct.Struct(">HH").unpack_from


def server_name_of(record: bytes) -> bytes | None:
    """Return the name that a whole ClientHello in one record asks for, None where it has none.

    Raises ValueError where its fields do not fit its length.
    """
    end = _HEADERS + int.from_bytes(record[6:_HEADERS], "big")
    at = _HEADERS + _FIXED
    for size_bytes in (1, 2, 1):  # session id, ciphers, compression
        at = _skipped(record, at, size_bytes, end)
    if at == end:
        return None
    if _skipped(record, at, 2, end) != end:
        raise ValueError("a ClientHello whose extensions do not fit its length")
    at += 2
    for _ in range(MAX_EXTENSIONS):
        if at == end:
            return None
        if at + 4 > end:
            break
        kind, size = _extension(record, at)
        at += 4
        if at + size > end:
            break
        if kind == _SERVER_NAME:
            return _host_name(record[at : at + size])
        at += size
    else:
        raise ValueError(f"a ClientHello with more than {MAX_EXTENSIONS} extensions")
    raise ValueError("a ClientHello whose extensions do not fit its length")


def _skipped(record: bytes, at: int, size_bytes: int, end: int) -> int:
    """Return where a field ends whose size stands before it."""
    after = at + size_bytes + int.from_bytes(record[at : at + size_bytes], "big")
    if at + size_bytes > end or after > end or end > len(record):
        raise ValueError("a ClientHello whose fields do not fit its length")
    return after


def _host_name(extension: bytes) -> bytes:
    """Return the only entry of a list of names, as OpenSSL takes it."""
    size = len(extension) - _NAME_HEADERS
    fits = 0 < size <= _MAX_NAME_LENGTH and extension == struct.pack(
        f">HBH{size}s", size + 3, _HOST_NAME, size, extension[_NAME_HEADERS:]
    )
    if not fits:
        raise ValueError(
            f"a ClientHello with a server name that is not one of 1 to {_MAX_NAME_LENGTH} bytes"
        )
    return extension[_NAME_HEADERS:]


# RFC 8446, 6.2
_DECODE_ERROR: Final = 50

_MISSING_EXTENSION: Final = 109

_UNRECOGNIZED_NAME: Final = 112

_MAX_SHOWN_LENGTH: Final = 100


def node_asked_for(hello: bytes, names: ServerNames) -> int | None:
    """Return the broker that a client asks for, None for any. Raises HandshakeError."""
    try:
        name = server_name_of(hello)
    except ValueError as error:
        raise HandshakeError("malformed", str(error), alert=_DECODE_ERROR) from None
    if name is None:
        text = "the client has sent no server name (SNI), which chooses the broker"
        raise HandshakeError("sni_missing", text, alert=_MISSING_EXTENSION)
    try:
        return names.node_of(name.decode("ascii"))
    except (LookupError, UnicodeDecodeError):
        shown = ascii(name[:_MAX_SHOWN_LENGTH].decode("latin-1"))
        text = f"the client asked for the server name {shown}, which this listener does not have"
        raise HandshakeError("sni_unknown", text, alert=_UNRECOGNIZED_NAME) from None
