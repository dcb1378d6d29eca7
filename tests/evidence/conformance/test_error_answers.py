"""error_answer against Kafka's AbstractRequest.getErrorResponse, for every API and version that a
gate carries.
"""

import json
import random
import struct
from collections.abc import Iterator

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.error_answers import error_answer
from batchval.protocol.field_schema import read, shape_of, write
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.primitives import Reader, Writer
from tests.evidence.conformance import oracle

pytestmark = pytest.mark.jvm

CODE = 31
MESSAGE = "Cluster authorization failed: not here."
KAFKAS_MESSAGE = "Cluster authorization failed."
NEVER = {ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE}
#: version 0 was never released (KIP-932)
SHARE_GROUPS = {
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
}
CORRELATION_ID = 77
#: Kafka puts the partitions of these into maps
MAPPED = {ApiKey.WRITE_TXN_MARKERS: "Markers", ApiKey.OFFSET_FETCH: "Topics"}


def value_of(shape, rng):
    if shape.nullable and rng.random() < 0.2:
        return None
    if shape.array:
        return [one_of(shape, rng, i) for i in range(rng.randrange(4))]
    return one_of(shape, rng, 0)


def one_of(shape, rng, i):
    match shape.method.removeprefix("nullable_"):
        case "":
            return values_of(shape.fields, rng)
        case "string":
            return rng.choice(["a", "b-1", "Zürich", "c" * 249, ""]) + str(i)
        case "data" | "records":
            return rng.randbytes(rng.randrange(5))
        case "uuid":
            return rng.randbytes(16)
        case "boolean":
            return rng.random() < 0.5
        case "float64":
            return rng.random()
        case "int8":
            return rng.choice([0, 2, 3])  # of the kinds of resources, operations and patterns
        case "int64":
            return rng.getrandbits(40)
        case "uint16":
            return rng.choice([0, 9092])
        case _:
            return rng.choice([-1, 0, 1, 2, 100, 30_000])


def values_of(shapes, rng):
    return {shape.name: value_of(shape, rng) for shape in shapes if shape.tag is None}


def requests(rng: random.Random, wanted) -> Iterator[tuple[int, int, bytes]]:
    for key, (first, last) in carried_versions().items():
        if key in NEVER or key == ApiKey.PRODUCE:
            continue
        api = APIS[key]
        for version in range(first, last + 1):
            for _ in range(8 if wanted(api, version) else 0):
                w = Writer(api.is_flexible(version))
                shapes = shape_of(f"{api.name}Request", version)
                write(shapes, w, values_of(shapes, rng))
                yield key, version, w.getvalue()


def framed(key: int, version: int, body: bytes) -> memoryview:
    header = struct.pack(">hhih", key, version, CORRELATION_ID, 3) + b"cli"
    return memoryview(header + (b"\0" if APIS[key].is_flexible(version) else b"") + body)


def normal(key: int, values: object) -> object:
    """Return values without what may differ: the order in maps, and the words of the error."""
    if isinstance(values, list | tuple):
        return [normal(key, one) for one in values]
    if isinstance(values, dict):
        if key in MAPPED and MAPPED[key] in values:
            return sorted(leaves(values[MAPPED[key]]), key=repr)
        return {
            name: normal(key, value) for name, value in values.items() if name != "ErrorMessage"
        }
    return bytes(values or b"") if isinstance(values, memoryview | None) else values


def leaves(structs: list[dict], above: tuple = ()) -> set[tuple]:
    """Return (producer id, topic, partition, error) of each partition."""
    found = set()
    for one in structs:
        below = next((value for value in one.values() if isinstance(value, list)), None)
        own = (*above, *(value for value in one.values() if not isinstance(value, list)))
        found |= {own} if below is None else leaves(below, own)
    return found


def messages_in(values: object) -> Iterator[str | None]:
    if isinstance(values, list | tuple):
        for one in values:
            yield from messages_in(one)
    if isinstance(values, dict):
        for name, value in values.items():
            if name == "ErrorMessage":
                yield value
            yield from messages_in(value)


def asked_of(release: str, rng: random.Random, wanted) -> list[dict]:
    lines = [
        json.dumps({"key": key, "version": v, "code": CODE, "request": body.hex()})
        for key, v, body in requests(rng, wanted)
    ]
    out = oracle.run(
        "error-answers",
        "-",
        "-",
        stdin="\n".join(lines).encode(),
        release=release,
        jvm=oracle.QUICK,
    )
    return [json.loads(line) for line in out.splitlines()]


def compare(cases: list[dict]) -> set[tuple[int, int]]:
    compared = set()
    for case in cases:
        key, version = case["key"], case["version"]
        name = f"{APIS[key].name} {version}"
        is_flexible = APIS[key].is_flexible(version)
        shapes = shape_of(f"{APIS[key].name}Response", version)
        answer = b"".join(
            error_answer(
                framed(key, version, bytes.fromhex(case["request"])), key, version, CODE, MESSAGE
            )
        )
        size, correlation_id = struct.unpack(">ii", answer[:8])
        assert (size, correlation_id) == (len(answer) - 4, CORRELATION_ID), name
        ours = read(shapes, Reader(answer[9 if is_flexible else 8 :], is_flexible))
        if "refused" in case:
            continue
        theirs = read(shapes, Reader(bytes.fromhex(case["response"]), is_flexible))
        if key == ApiKey.FETCH:
            as_a_broker(version, ours, theirs, case)
        else:
            assert normal(key, ours) == normal(key, theirs), name
        assert set(messages_in(ours)) <= {MESSAGE}, name
        assert set(messages_in(theirs)) <= {None, KAFKAS_MESSAGE}, name
        compared.add((key, version))
    return compared


def as_a_broker(version, ours, theirs, case):
    """Compare answers to Fetch: ours has no error of the whole and no session, and its partitions
    are those that Kafka makes below version 13.
    """
    assert ours.pop("ErrorCode", 0) == 0
    assert theirs.pop("ErrorCode", CODE) == CODE
    ours.pop("SessionId", 0)
    theirs.pop("SessionId", 0)
    if version < 13:
        assert normal(1, ours) == normal(1, theirs), version
        return
    request = read(shape_of("FetchRequest", version), Reader(bytes.fromhex(case["request"]), True))
    assert [topic["TopicId"] for topic in ours["Responses"]] == [
        topic["TopicId"] for topic in request["Topics"]
    ]
    for topic, asked in zip(ours["Responses"], request["Topics"], strict=True):
        assert [(p["PartitionIndex"], p["ErrorCode"]) for p in topic["Partitions"]] == [
            (p["Partition"], CODE) for p in asked["Partitions"]
        ]


def is_known_to_4(api, version):
    return version >= api.min_version


def is_known_to_3_alone(api, version):
    return version < api.min_version and api.key not in SHARE_GROUPS


@pytest.mark.parametrize(
    ("release", "wanted"), [("4.4.0", is_known_to_4), ("3.9.2", is_known_to_3_alone)]
)
def test_answers_are_kafkas(kafka, release, wanted):
    compared = compare(asked_of(release, random.Random(1), wanted))
    assert compared == {
        (key, version)
        for key, (first, last) in carried_versions().items()
        for version in range(first, last + 1)
        if key not in NEVER | {ApiKey.PRODUCE} and wanted(APIS[key], version)
    }
