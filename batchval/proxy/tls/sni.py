"""Choose the broker of a TLS client by the server name in its ClientHello, before any answer.

A client without a known name gets a TLS alert and is counted as a failed handshake:

    sni_missing    no server name (missing_extension, RFC 8446, 4.4.2.2)
    sni_unknown    a name that is neither the bootstrap name nor a broker's (unrecognized_name)
    malformed      a ClientHello that cannot be read (decode_error)
"""

from __future__ import annotations

from typing import Final

from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.tls.client_hello import server_name_of
from batchval.proxy.tls.handshakes import HandshakeError

__all__ = ["node_asked_for"]

# RFC 8446, 6.2
_DECODE_ERROR: Final = 50
_MISSING_EXTENSION: Final = 109
_UNRECOGNIZED_NAME: Final = 112

_MOST_SHOWN: Final = 100


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
        shown = ascii(name[:_MOST_SHOWN].decode("latin-1"))
        text = f"the client asked for the server name {shown}, which this listener does not have"
        raise HandshakeError("sni_unknown", text, alert=_UNRECOGNIZED_NAME) from None
