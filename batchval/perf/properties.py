"""Clients' settings as Kafka's tools take them: a file of Java properties, and NAME=VALUE from the
command line.

    --command-config FILE  linger.ms=5 / linger.ms: 5 / linger.ms 5, comments with # or !; a line
                           that ends with \\ goes on
    --command-property NAME=VALUE[,NAME=VALUE…]

The command line overrides the file. ``PRODUCER`` and ``CONSUMER`` map Kafka's names to option names
and kinds of values; ``rdkafka`` returns librdkafka's names and values for the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from batchval.errors import BatchvalError
from batchval.named_files import read_whole
from batchval.network.cluster_metadata import bootstrap_nodes
from batchval.network.security import PROPERTIES as SECURITY

__all__ = [
    "PropertyError",
    "check_servers",
    "consumer_options",
    "gathered",
    "parse",
    "producer_options",
    "rdkafka",
    "shown",
]

#: in the names of what nobody else is to know, Kafka's and librdkafka's
_SECRET = ("password", "passphrase", "jaas", ".key", "secret", "oauthbearer.config")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertyError(BatchvalError):
    """A setting that cannot be meant: its file, its form or its value. One line."""


def parse(text: str) -> dict[str, str]:
    """Parse Java properties. Raises PropertyError for a bad \\uXXXX."""
    found: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", whole, re.DOTALL)
        assert match is not None  # every string has this form
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise PropertyError(
                "a property with \\u that is not followed by four hexadecimal digits"
            )
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.?))", one, text, flags=re.DOTALL)


def check_servers(text: str) -> None:
    """Check the addresses for any client: librdkafka takes port 99999 modulo 65536.

    Raises PropertyError.
    """
    try:
        bootstrap_nodes([text])
    except ValueError as error:
        raise PropertyError(f"--bootstrap-server: {error}") from None


def gathered(files: Iterable[Path], pairs: Iterable[str]) -> dict[str, str]:
    """Return all properties; later ones override earlier ones, and pairs override files.

    Raises PropertyError, OSError.

    """
    found: dict[str, str] = {}
    for file in files:
        try:
            found |= parse(read_whole(file).decode())
        except UnicodeDecodeError:
            raise PropertyError(f"{file}: not text in UTF-8") from None
        except PropertyError as error:
            raise PropertyError(f"{file}: {error}") from None
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise PropertyError(f"{pair!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for a published result: possible secrets become an ellipsis."""
    return {
        name: "…" if any(word in name for word in _SECRET) else value
        for name, value in properties.items()
    }


# The readers of values raise ValueError with the values that are allowed.


def _one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    *others, last = values

    def read(text: str) -> Any:
        if text.lower() not in values:
            raise ValueError(f"{', '.join(others)} or {last}")
        return values[text.lower()]

    return read


_boolean = _one_of({"true": True, "false": False})
_acks = _one_of({"all": -1, "-1": -1, "0": 0, "1": 1})
_codec = _one_of({codec: codec for codec in ("none", "gzip", "snappy", "lz4", "zstd")})


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("an integer") from None


def _at_least(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            value = int(text)
            if least <= value <= most:
                return value
        raise ValueError(f"an integer, {least} to {most}")

    return read


def _buffer(text: str) -> int | None:
    value = _at_least(-1)(text)
    return None if value == -1 else value


def _nodes(text: str) -> list[str]:
    nodes = [node.strip() for node in text.split(",") if node.strip()]
    if not nodes:
        raise ValueError("HOST:PORT, several with commas")
    return nodes


_Known = Mapping[str, tuple[str, Callable[[str], Any]]]

#: Kafka's name -> the name in ProducerOptions, and how its value is read
PRODUCER: _Known = {
    "bootstrap.servers": ("bootstrap_servers", _nodes),
    "client.id": ("client_id", str),
    "acks": ("acks", _acks),
    "linger.ms": ("linger_ms", _at_least(0)),
    "batch.size": ("batch_size", _at_least(0)),
    "buffer.memory": ("buffer_memory", _at_least(1, 2**62)),
    "max.request.size": ("max_request_size", _at_least(1)),
    "max.in.flight.requests.per.connection": ("max_in_flight", _at_least(1)),
    "compression.type": ("compression_type", _codec),
    "enable.idempotence": ("enable_idempotence", _boolean),
    "transactional.id": ("transactional_id", str),
    "transaction.timeout.ms": ("transaction_timeout_ms", _at_least(1)),
    "retries": ("retries", _at_least(0)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _at_least(1)),
    "request.timeout.ms": ("request_timeout_ms", _at_least(1)),
    "retry.backoff.ms": ("retry_backoff_ms", _at_least(0)),
    "max.block.ms": ("max_block_ms", _at_least(0)),
    "send.buffer.bytes": ("send_buffer_bytes", _buffer),
    "receive.buffer.bytes": ("receive_buffer_bytes", _buffer),
}
#: The same for ConsumerOptions, which looks at most of the values itself.
CONSUMER: _Known = {
    "client.id": ("client_id", str),
    "fetch.max.bytes": ("fetch_max_bytes", _integer),
    "fetch.min.bytes": ("fetch_min_bytes", _integer),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", _integer),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", _integer),
    "receive.buffer.bytes": ("receive_buffer_bytes", _buffer),
    "session.timeout.ms": ("session_timeout_ms", _integer),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _integer),
    "max.poll.interval.ms": ("max_poll_interval_ms", _integer),
    "request.timeout.ms": ("request_timeout_ms", _at_least(1)),
    "isolation.level": ("isolation_level", str),
    "auto.offset.reset": ("auto_offset_reset", str),
    "enable.auto.commit": ("enable_auto_commit", _boolean),
    "check.crcs": ("check_crcs", _boolean),
}
_LEVELS = tuple(f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd"))
#: present in many files, without meaning here
_SERIALIZERS = {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}


def producer_options(
    properties: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return (arguments of ProducerOptions, properties of security, names without meaning here).

    Raises PropertyError for a value that its name does not allow.

    """
    return _translated(properties, PRODUCER)


def consumer_options(
    properties: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the same for ConsumerOptions."""
    return _translated(properties, CONSUMER)


def _translated(
    properties: Mapping[str, str], known: _Known
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    options: dict[str, Any] = {}
    security: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in properties.items():
        if name in SECURITY:
            security[name] = value
        elif name in known:
            ours, read = known[name]
            options[ours] = _read(name, value, read)
        elif name in _LEVELS and "compression.type" in known:
            level = _read(name, value, _integer)
            if name.split(".")[1] == properties.get("compression.type", "none").lower():
                options["compression_level"] = level
        elif name not in _SERIALIZERS:
            unknown.append(name)
    return options, security, unknown


def _read(name: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as allowed:
        raise PropertyError(f"invalid {name} {value!r}: expected {allowed}") from None


_RDKAFKA_NAMES = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_JAAS = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")


def rdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return librdkafka's configuration for Kafka's names; other names are passed on unchecked.

    Raises PropertyError.

    """
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name in PRODUCER:
            _read(name, value, PRODUCER[name][1])
        if name == "buffer.memory":
            found["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
        elif name == "max.block.ms" or name in _SERIALIZERS:
            continue
        elif name in {"send.buffer.bytes", "receive.buffer.bytes"}:
            # 0 leaves it to the system
            found[_RDKAFKA_NAMES[name]] = max(0, int(value))
        elif name in _LEVELS:
            if name.split(".")[1] == properties.get("compression.type", "none").lower():
                found["compression.level"] = value
        elif name == "sasl.jaas.config":
            for match in _JAAS.finditer(value):
                text = next(group for group in match.groups()[1:] if group is not None)
                found[f"sasl.{match[1]}"] = re.sub(r"\\(.)", r"\1", text)
        elif name == "ssl.truststore.location":
            found["ssl.ca.location"] = _pem(name, value, properties.get("ssl.truststore.type"))
        elif name == "ssl.keystore.location":
            found["ssl.certificate.location"] = _pem(
                name, value, properties.get("ssl.keystore.type")
            )
            found["ssl.key.location"] = value
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name not in {"ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"}:
            found[_RDKAFKA_NAMES.get(name, name)] = value
    return found


def _pem(name: str, value: str, kind: str | None) -> str:
    if (kind or "JKS").upper() != "PEM":
        raise PropertyError(
            f"{name}: librdkafka reads PEM alone (set {name.removesuffix('location')}type=PEM)"
        )
    return value
