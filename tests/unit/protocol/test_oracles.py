"""Every message compared with two other readers and writers: kio's and kafka-python's, each from
Kafka's definitions.

What is written here is read there, field by field the same, and written there again to the same
bytes; those are what is read here (the round trip of test_messages). Where a library does not know
an API or version, it is not asked; how many pairs are is asserted.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import uuid
from typing import Any

import pytest

from batchval.protocol.message import Message, Request
from batchval.protocol.messages import ApiVersionsResponse
from tests.unit.protocol.values import IDS, VERSIONS, body, invented, is_struct, structs

kio = pytest.importorskip("kio", reason="kio is not installed")
kafka_protocol = pytest.importorskip("kafka.protocol", reason="kafka-python is not installed")

from kio.serial import entity_reader, entity_writer  # noqa: E402

SEEDS = range(4)
#: kio and kafka-python say these in their own words
MS = datetime.timedelta(milliseconds=1)


def kafka_python_class(kind: type[Message]) -> Any:
    for name in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{name}")
        if hasattr(module, kind.__name__):
            return getattr(module, kind.__name__)
    return None


def kio_class(kind: type[Message], version: int) -> Any:
    side = "request" if issubclass(kind, Request) else "response"
    name = kind.__module__.rsplit(".", 1)[1]
    try:
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    return getattr(module, kind.__name__)


PYTHON_PAIRS = [
    (k, v)
    for k, v in VERSIONS
    if (c := kafka_python_class(k)) and c.min_version <= v <= c.max_version
]
KIO_PAIRS = [(k, v) for k, v in VERSIONS if kio_class(k, v)]


def ids(pairs: list[tuple[type[Message], int]]) -> list[str]:
    return [IDS[VERSIONS.index(pair)] for pair in pairs]


def plain(value: Any) -> Any:
    """A stranger's value in this project's words."""
    match value:
        case datetime.timedelta():
            return value // MS
        case datetime.datetime():
            return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // MS
        case uuid.UUID():
            return value.bytes
        case bool() | str() | None:
            return value
        case int():
            return int(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
    return value


def compare(ours: Any, theirs: Any, where: str) -> list[str]:
    """The fields that differ; a field that they do not have is one that this version does not
    carry.
    """
    wrong = []
    for field in ours.__match_args__:
        if field in ("unknown_tagged_fields", "api_version"):
            continue
        for name in (field, field.removesuffix("_ms")):
            if hasattr(theirs, name):
                break
        else:
            continue
        mine, other = getattr(ours, field), getattr(theirs, name)
        here = f"{where}.{field}"
        if isinstance(mine, list) and other is not None:
            if len(mine) != len(other):
                wrong.append(f"{here}: {len(mine)} and {len(other)} elements")
            for n, (a, b) in enumerate(zip(mine, other, strict=False)):
                same = (
                    compare(a, b, f"{here}[{n}]")
                    if is_struct(a)
                    else []
                    if a == plain(b)
                    else [here]
                )
                wrong += same
        elif is_struct(mine):
            wrong += compare(mine, other, here)
        elif plain(mine) != plain(other) and not (other is None and mine in (bytes(16), -1)):
            wrong.append(f"{here}: {mine!r} and {other!r}")
    return wrong


def compared(ours: Any, theirs: Any) -> int:
    return sum(hasattr(theirs, field) for field in ours.__match_args__)


@pytest.mark.parametrize(("kind", "version"), PYTHON_PAIRS, ids=ids(PYTHON_PAIRS))
def test_kafka_python_reads_and_writes_the_same(kind: type[Message], version: int) -> None:
    stranger = kafka_python_class(kind)
    for seed in SEEDS:
        message = invented(kind, version, seed, unknown_tags=False)
        if kind is ApiVersionsResponse:
            message.error_code = 0  # with an error it reads version 0, whatever the version
        data = body(message, version)
        theirs = stranger.decode(data, version=version)
        assert compare(message, theirs, kind.__name__) == []
        theirs._header = None  # its writer asks for it, its reader does not make it
        assert bytes(theirs.encode(version=version)) == data


def tame(message: Any) -> Any:
    """Values that kio has names for: known errors, times that a calendar knows."""
    for one in structs(message):
        for field in one.__match_args__:
            value = getattr(one, field)
            if field.endswith("error_code"):
                setattr(one, field, abs(value) % 100)
            elif field.endswith(("_ms", "timestamp")) and isinstance(value, int):
                limit = 10**6 if field.endswith("_ms") and "time_ms" not in field else 10**9
                setattr(one, field, abs(value) % limit if abs(value) > 1 else abs(value))
    return message


@pytest.mark.parametrize(("kind", "version"), KIO_PAIRS, ids=ids(KIO_PAIRS))
def test_kio_reads_and_writes_the_same(kind: type[Message], version: int) -> None:
    entity = kio_class(kind, version)
    read, write = entity_reader(entity), entity_writer(entity)
    for seed in SEEDS:
        message = tame(invented(kind, version, seed, unknown_tags=False))
        data = body(message, version)
        theirs, size = read(data, 0)
        assert size == len(data)
        assert compare(message, theirs, kind.__name__) == []
        assert compared(message, theirs) > 0 or not dataclasses.fields(entity)
        out = io.BytesIO()
        write(out, theirs)
        assert out.getvalue() == data


def test_how_many_were_asked() -> None:
    assert (len(VERSIONS), len(KIO_PAIRS), len(PYTHON_PAIRS)) == (302, 300, 292)
