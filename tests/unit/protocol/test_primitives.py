"""Reader and Writer: every type at its ends, both forms of lengths, and refusals that name the
place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from batchval import BatchvalError
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import WORDS, Reader, Writer
from tests.unit.protocol.values import body, refusal

ENDS: list[tuple[str, list[Any]]] = [
    ("boolean", [True, False]),
    ("int8", [-128, 0, 127]),
    ("int16", [-(2**15), 0, 2**15 - 1]),
    ("uint16", [0, 2**16 - 1]),
    ("int32", [-(2**31), 0, 2**31 - 1]),
    ("uint32", [0, 2**32 - 1]),
    ("int64", [-(2**63), 0, 2**63 - 1]),
    ("float64", [0.0, -1.5, float("inf")]),
    ("uvarint", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28 - 1, 2**28, 2**32 - 1]),
    ("varint", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31)]),
    ("uuid", [bytes(16), bytes(range(16))]),
    ("string", ["", "a", "é☃𝄞", "x" * 32767]),
    ("nullable_string", [None, "", "a"]),
    ("data", [b"", b"a" * 70_000]),
    ("nullable_data", [None, b"", b"abc"]),
    ("nullable_records", [None, b"", b"abc"]),
    ("int32_array", [[], [1, -1], list(range(200))]),
    ("count", [0]),
]


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize(("name", "values"), ENDS)
def test_both_ways(name: str, values: list[Any], flexible: bool) -> None:
    for value in values:
        w = Writer(flexible)
        getattr(w, name)(value)
        data = w.getvalue()
        r = Reader(data, flexible)
        assert getattr(r, name)() == value
        r.finish()
        for size in range(0, len(data), max(1, len(data) // 50)):
            with pytest.raises(ProtocolError):
                getattr(Reader(data[:size], flexible), name)()


LENGTHS: list[tuple[str, bool, bytes, str]] = [
    ("string", False, b"\xff\xff", "null where"),
    ("string", True, b"\x00", "null where"),
    ("string", False, b"\xff\xfe", "below -1"),
    ("nullable_string", False, b"\x80\x00", "below -1"),
    ("string", False, b"\x7f\xffabc", "end before"),
    ("string", True, b"\x81\x80\x02" + bytes(40_000), "32767"),
    ("string", True, b"\xff\xff\xff\xff\x0f", "32767"),
    ("data", False, b"\x7f\xff\xff\xffabc", "end before"),
    ("data", False, b"\x80\x00\x00\x00abc", "below -1"),
    ("data", True, b"\xff\xff\xff\xff\x0fabc", "end before"),
    ("records", True, b"\x00", "null where"),
    ("records", False, b"\xff\xff\xff\xff", "null where"),
    ("count", False, b"\x7f\xff\xff\xff", "more elements"),
    ("count", True, b"\xff\xff\xff\xff\x0f", "more elements"),
    ("count", False, b"\xff\xff\xff\xff", "null where"),
    ("nullable_count", False, b"\xff\xff\xff\xfe", "below -1"),
    ("int32_array", False, b"\x00\x00\x00\x03" + bytes(8), "end before"),
    ("uvarint", True, b"\x80\x80\x80\x80\x10", "more than 32 bits"),
    ("uvarint", True, b"\x80\x80\x80\x80\x80\x00", "more than 32 bits"),
    ("uvarint", True, b"\x80\x80\x80\x80", "end before"),
    ("unknown_tags", True, b"\x01\x05\x04abc", "end before"),
    ("unknown_tags", True, b"\xff\xff\xff\xff\x0f", "end before"),
]


@pytest.mark.parametrize(("name", "flexible", "data", "says"), LENGTHS)
def test_lengths_that_lie(name: str, flexible: bool, data: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says) as refused:
        getattr(Reader(data, flexible), name)()
    assert refused.value.what in WORDS
    assert 0 <= refused.value.position <= len(data)


def test_the_first_failure_stays() -> None:
    r = Reader(b"\0\0\0\1")
    r.int16()
    with pytest.raises(ProtocolError, match="at byte 2"):
        r.int32()
    with pytest.raises(ProtocolError, match="at byte 2"):
        r.int8()


@message_class
class Tagged(Struct):
    """A struct whose tagged field came with version 1."""

    number: int = field("int16@1-#0", default=0)


@message_class
class Outer(Struct):
    """A struct with others."""

    flexible_from: ClassVar[int] = 0

    inner: list[Tagged] = field("[]Tagged", factory=list)


def test_a_known_tag_must_fill_its_size() -> None:
    r = Reader(b"\x01\x00\x02\x01\x02\x09", True)
    assert Tagged.read(r, 1) == Tagged(258)
    assert r.int8() == 9
    unknown = Tagged(unknown_tagged_fields=((0, b"\x01\x02"),))
    assert Tagged.read(Reader(b"\x01\x00\x02\x01\x02", True), 0) == unknown
    for data, says in (
        (b"\x00\x03\x01\x02\x03\x09", "fill its size"),
        (b"\x00\x04abc", "end before"),
    ):
        with pytest.raises(ProtocolError, match=says):
            Tagged.read(Reader(b"\x01" + data, True), 1)


def test_a_subclass_is_read_as_itself_and_may_write_otherwise() -> None:
    class Later(Tagged):
        def write(self, w: Writer, version: int) -> None:
            super().write(w, version + 1)

    later = Later.read(Reader(b"\x01\x00\x02\x01\x02", True), 1)
    assert (type(later), later.number) == (Later, 258)
    assert body(Outer([later, Tagged(3)]), 0) == b"\x03\x01\x00\x02\x01\x02\x00\x00"


def test_malformed_text_is_replaced_as_kafka_does() -> None:
    assert Reader(b"\x00\x03a\xffb").string() == "a\ufffdb"


@pytest.mark.parametrize("wrong", ["text", None, 5, memoryview(b"abcd")[::2]])
def test_an_object_without_a_buffer_is_refused(wrong: Any) -> None:
    with pytest.raises(BatchvalError, match="contiguous"):
        Reader(wrong)
    with pytest.raises(BatchvalError, match=r"contiguous|null"):
        Writer().records(wrong)
    with pytest.raises(BatchvalError, match=r"contiguous|null"):
        Writer().data(wrong)


WRONG: list[Callable[[Writer], None]] = [
    lambda w: w.uuid(b"short"),
    lambda w: w.string(None),
    lambda w: w.string("é" * 16384),
    lambda w: w.tags([(3, b""), (3, b"")]),
]


@pytest.mark.parametrize("write", WRONG)
def test_what_cannot_be_written(write: Callable[[Writer], None]) -> None:
    with pytest.raises(ProtocolError):
        write(Writer(True))


def test_random_calls_on_random_bytes() -> None:
    rng = random.Random(5)
    names = [name for name, _ in ENDS] + [
        "unknown_tags",
        "rest",
        "records",
        "finish",
    ]
    for _ in range(3000):
        r = Reader(
            bytes(rng.choices((0, 1, 3, 0x80, 0xFF, rng.randrange(256)), k=rng.randrange(40))),
            rng.random() < 0.5,
        )
        for _ in range(6):
            refused = refusal(getattr(r, rng.choice(names)))
            assert refused is None or refused.position >= 0
