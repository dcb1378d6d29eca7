"""Random messages of exactly one version, by the layouts of their fields."""

from __future__ import annotations

import random
import re
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Message, Request, Response
from batchval.protocol.message_class import LAYOUT, holds
from batchval.protocol.primitives import Writer
from tests.unit.protocol.address_messages import describe_cluster, share_acknowledge, share_fetch

CLASSES: list[type[Message]] = sorted(
    [
        *(getattr(messages, name) for name in dir(messages)),
        *(describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
        *(share_acknowledge.ShareAcknowledgeRequest, share_acknowledge.ShareAcknowledgeResponse),
        *(share_fetch.ShareFetchRequest, share_fetch.ShareFetchResponse),
    ],
    key=lambda kind: kind.__name__,
)
VERSIONS = [(kind, v) for kind in CLASSES for v in range(kind.min_version, kind.max_version + 1)]
IDS = [f"{kind.__name__}-{v}" for kind, v in VERSIONS]

_LETTERS = "abcdefghijklmnop-._:/ éß☃𝄞\x00"


class Inventor:
    """Has the names of a Reader's methods, and returns random values; each range's ends are
    likely.
    """

    def __init__(
        self, seed: int, unknown_tags: bool = True, most: int = 4, flexible: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.flexible = flexible
        self.with_unknown = unknown_tags
        self.most = most

    def _integer(self, low: int, high: int) -> int:
        return self.random.choice([low, high, 0, 1, self.random.randint(low, high)])

    def boolean(self) -> bool:
        return self.random.random() < 0.5

    def int8(self) -> int:
        return self._integer(-128, 127)

    def int16(self) -> int:
        return self._integer(-(2**15), 2**15 - 1)

    def uint16(self) -> int:
        return self._integer(0, 2**16 - 1)

    def int32(self) -> int:
        return self._integer(-(2**31), 2**31 - 1)

    def uint32(self) -> int:
        return self._integer(0, 2**32 - 1)

    def int64(self) -> int:
        return self._integer(-(2**63), 2**63 - 1)

    def float64(self) -> float:
        return float(struct.unpack(">f", struct.pack(">f", self.random.uniform(-1e9, 1e9)))[0])

    def uuid(self) -> bytes:
        return self.random.choice([bytes(16), self.random.randbytes(16)])

    def string(self) -> str:
        size = self.random.choice([0, 1, 5, 20, self.random.choice([127, 200, 126])])
        return "".join(self.random.choices(_LETTERS, k=size))

    def nullable_string(self) -> str | None:
        return None if self.random.random() < 0.25 else self.string()

    def data(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 30, 127, 128, 300]))

    records = data

    def nullable_data(self) -> bytes | None:
        return None if self.random.random() < 0.25 else self.data()

    nullable_records = nullable_data

    def count(self) -> int:
        return self.random.choice([0, 1, 1, 2, self.most])

    def nullable_count(self) -> int:
        return -1 if self.random.random() < 0.25 else self.count()

    def int32_array(self) -> list[int]:
        return [self.int32() for _ in range(self.count())]

    def unknown_tags(self) -> tuple[tuple[int, bytes], ...]:
        if not self.flexible or not self.with_unknown or self.random.random() < 0.5:
            return ()
        tags = self.random.sample(
            [0, 1, 127, 128, 9999, 25206, 2**32 - 1], self.random.randint(1, 3)
        )
        return tuple((tag, self.data()) for tag in sorted(tags))


def is_struct(value: Any) -> bool:
    """Whether it is a message, or a struct of one."""
    return hasattr(type(value), "unknown_tagged_fields")


def structs(message: Any) -> Iterator[Any]:
    """The message and every struct in it."""
    yield message
    for name in message.__match_args__:
        value = getattr(message, name)
        for one in value if isinstance(value, list) else [value]:
            if is_struct(one):
                yield from structs(one)


def invented(kind: type[Message], version: int, seed: int, unknown_tags: bool = True) -> Any:
    """A message of this version; its tagged fields in the order of their tags, as they are
    written.
    """
    inventor = Inventor(seed, unknown_tags, flexible=version >= kind.flexible_from)
    message = _invent(kind, version, inventor)
    for one in structs(message):
        one.unknown_tagged_fields = tuple(sorted(one.unknown_tagged_fields)) if unknown_tags else ()
    return message


_METHODS = {"bool": "boolean", "bytes": "data"}


def _invent(kind: Any, version: int, inventor: Inventor) -> Any:
    """A struct with a random value for each field that this version has."""
    has_version = "api_version" in kind.__match_args__
    message = kind(api_version=version) if has_version else kind()
    flexible, known = inventor.flexible, set()
    for name, field in kind.layout.fields.items():
        layout = LAYOUT.fullmatch(field.metadata["layout"])
        assert layout
        if layout["type"] in ("version", "tags") or not holds(layout["versions"], version):
            continue
        if layout["tag"]:
            known.add(int(layout["tag"]))
            if inventor.random.random() < 0.5:
                continue
        setattr(message, name, _value(kind, layout, version, inventor))
    unknown = inventor.unknown_tags()
    message.unknown_tagged_fields = tuple(one for one in unknown if one[0] not in known)
    assert flexible or not (known or unknown)
    return message


def _value(kind: Any, layout: re.Match[str], version: int, inventor: Inventor) -> Any:
    nullable = layout["nullable"] is not None and holds(layout["nullable"], version)
    inner = getattr(sys.modules[kind.__module__], layout["type"], None)
    method = _METHODS.get(layout["type"], layout["type"])

    def one() -> Any:
        return _invent(inner, version, inventor) if inner else getattr(inventor, method)()

    if layout["array"]:
        count = inventor.nullable_count() if nullable else inventor.count()
        return None if count < 0 else [one() for _ in range(count)]
    return getattr(inventor, f"nullable_{method}")() if nullable else one()


def refusal(call: Callable[[], Any]) -> ProtocolError | None:
    """What a call refuses with, None where it does not; any other exception goes on."""
    try:
        call()
    except ProtocolError as refused:
        return refused
    return None


def body(message: Message, version: int) -> bytes:
    w = Writer(version >= message.flexible_from)
    message.write(w, version)
    return w.getvalue()


def frame(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """The whole frame, its length first."""
    if isinstance(message, Request):
        return b"".join(message.encode(correlation_id, "a client"))
    assert isinstance(message, Response)
    return b"".join(message.encode(correlation_id, version))


def read_frame(kind: type[Message], version: int, data: Any) -> Any:
    """The message in a frame without its length."""
    if issubclass(kind, Request):
        return kind.parse(data)[1]
    assert issubclass(kind, Response)
    return kind.decode(data, version)
