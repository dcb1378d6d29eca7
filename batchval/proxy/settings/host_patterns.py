"""Host names with a broker's id in them, and the server names of a listener's clients.

    broker-{node}.kafka.example.com    one placeholder, for the id in decimal digits

As a server name it comes back from clients in the TLS handshake (SNI, RFC 6066, section 3): in any
case, perhaps with the final dot of DNS, and never for an IP address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

__all__ = [
    "MAX_HOST",
    "MAX_NODE_ID",
    "NODE",
    "HostPattern",
    "ServerNames",
    "check_advertised_host",
    "check_allowed_host",
    "check_server_name",
]

NODE: Final = "{node}"
#: Characters of a host, and the largest id of a broker.
MAX_HOST: Final = 255
MAX_NODE_ID: Final = 2**31 - 1

_MAX_DIGITS: Final = len(str(MAX_NODE_ID))
_MAX_SERVER_NAME_LENGTH: Final = 253  # RFC 1035, without the final dot
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NODE_ID = re.compile(rf"0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}}")


class HostPattern(NamedTuple):
    """The texts before and after a broker's id; ``after`` is None where all share the host."""

    before: str
    after: str | None = None

    @classmethod
    def parse(cls, text: str) -> HostPattern:
        """Return the pattern of a text that was checked."""
        before, found, after = text.partition(NODE)
        return cls(before, after if found else None)

    def host_of(self, node_id: int) -> str:
        """Return the host of one broker."""
        return self.before if self.after is None else f"{self.before}{node_id}{self.after}"

    def node_of(self, host: str) -> int | None:
        """Return the broker whose host this is, None for any other host. Both are lower case."""
        if self.after is None or not host.startswith(self.before) or not host.endswith(self.after):
            return None
        digits = host[len(self.before) : len(host) - len(self.after)]
        if not _NODE_ID.fullmatch(digits) or (node_id := int(digits)) > MAX_NODE_ID:
            return None
        return node_id


class ServerNames:
    """The server names that clients of one listener may ask for.

    ``bootstrap``  the name for any broker
    ``broker``     the pattern of the names for one
    """

    def __init__(self, bootstrap: str, broker: str) -> None:
        self.bootstrap = bootstrap.lower()
        self.broker = HostPattern.parse(broker.lower())

    def node_of(self, name: str) -> int | None:
        """Return the broker of a name, None for the bootstrap name. Raises LookupError."""
        name = name.lower().removesuffix(".")
        if name == self.bootstrap:
            return None
        node_id = self.broker.node_of(name)
        if node_id is None:
            raise LookupError(name)
        return node_id


def check_advertised_host(text: str) -> str:
    """Return a host to advertise, with {node} at most once. Raises ValueError."""
    longest = _with_longest_id(text)
    if not _HOST.fullmatch(longest) or len(longest) > MAX_HOST:
        raise ValueError(
            f"'{text}' cannot be a host: at most {MAX_HOST} letters, digits, '.', '-', '_' and "
            f"':', and {NODE} once for the broker's id"
        )
    return text


def check_allowed_host(text: str) -> str:
    """Return a name of ``metrics.allowed_hosts``, without the final dot. Raises ValueError."""
    if not text.isascii():
        raise ValueError(f"'{text}' must be written as in DNS: {_a_labels(text)}")
    name = text if text == "*." else text.removesuffix(".")
    labels = name.removeprefix("*.").split(".")
    if name != "*" and not _is_ip(name) and not all(map(_HOST_LABEL.fullmatch, labels)):
        raise ValueError(
            f"'{text}' cannot be a host: expected a name or an address without a port, "
            "*.example.com for all names that end like that, or * for any"
        )
    return name


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_server_name(text: str, *, has_node: bool) -> str:
    """Return the server name of a listener, or the pattern of its brokers'. Raises ValueError."""
    if not text.isascii():
        raise ValueError(f"'{text}' must be written as in DNS: {_a_labels(text)}")
    longest = _with_longest_id(text)
    if has_node and NODE not in text:
        raise ValueError(f"'{text}' needs {NODE}, which stands for the broker's id")
    if not has_node and NODE in text:
        raise ValueError(f"'{text}' is one name for all brokers: {NODE} is not allowed")
    labels = longest.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or len(longest) > _MAX_SERVER_NAME_LENGTH:
        raise ValueError(
            f"'{text}' cannot be a server name: labels of 1 to 63 letters, digits and '-' with '.' "
            f"between them, {_MAX_SERVER_NAME_LENGTH} characters in all"
        )
    if len(labels) == 1:
        raise ValueError(f"'{text}' needs a '.': Java clients send no server name without one")
    if labels[-1].isdigit():
        raise ValueError(
            f"'{text}' ends as an IP address does: clients send no server name for those"
        )
    return text


def _with_longest_id(text: str) -> str:
    """Return the text with the longest id in place of {node}. Raises ValueError."""
    placeholders = _PLACEHOLDER.findall(text)
    unknown = next((one for one in placeholders if one != NODE), None)
    if unknown is not None:
        raise ValueError(f"'{text}' has the unknown placeholder {unknown}: only {NODE} is allowed")
    if len(placeholders) > 1:
        raise ValueError(f"'{text}' has {NODE} {len(placeholders)} times, expected once")
    return text.replace(NODE, "9" * _MAX_DIGITS)


def _a_labels(text: str) -> str:
    """Return the ASCII form of an international name (RFC 5890), else what may be used."""
    try:
        name = text.replace(NODE, "node-placeholder").encode("idna").decode()
    except UnicodeError:
        return "letters, digits, '-' and '.'"
    return name.replace("node-placeholder", NODE)
