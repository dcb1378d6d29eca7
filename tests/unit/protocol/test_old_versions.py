"""Old versions raised and lowered again, compared field by field with Kafka's message definitions.

The definitions are those of kafka-python, which has the versions that Kafka 4 removed.
"""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.old_fetch import AnswerWriter, OldFetch, read_answer
from batchval.protocol.old_list_offsets import EARLIEST, LATEST, OldListOffsets
from batchval.protocol.old_versions import (
    CONSUMERS,
    ERROR_CODES,
    PRODUCERS,
    lower_answer,
    raise_request,
)
from batchval.protocol.primitives import Reader, Writer
from tests.unit.protocol.definitions import definition, invent, read
from tests.unit.protocol.values import Inventor

SEEDS = range(12)
#: What an old version does not say, and what the raised request says in its place.
PUT = {
    "GenerationIdOrMemberEpoch": -1,
    "GenerationId": -1,
    "MemberId": "",
    "RetentionTimeMs": -1,
    "validateOnly": False,
    "CurrentLeaderEpoch": -1,
    "IncludeSynonyms": False,
    "PatternTypeFilter": 3,
    "ResourcePatternType": 3,
}
DELEGATION = "DelegationToken"
CASES = [
    (key, version)
    for key, raised in CONSUMERS.items()
    for version in range(raised.oldest, raised.to)
    if key not in (ApiKey.FETCH, ApiKey.LIST_OFFSETS)
]
#: kafka-python has no delegation tokens; of those only the number changes
KNOWN = [(key, version) for key, version in CASES if not APIS[key].name.endswith(DELEGATION)]


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return the fields of both that differ, and fields of ``new`` alone that are not as in PUT."""
    if isinstance(old, dict) and isinstance(new, dict):
        wrong = []
        for name in new:
            here = f"{where}.{name}"
            if name in old:
                wrong += differences(old[name], new[name], here)
            elif new[name] != PUT.get(name, "not expected"):
                wrong.append(f"{here}: {new[name]!r} was put in")
        return wrong
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [wrong for a, b in zip(old, new, strict=True) for wrong in differences(a, b, where)]
    return [] if old == new else [f"{where}: {old!r} and {new!r}"]


def as_lowered(key: int, answer: Any) -> Any:
    """Return what the old version says of an answer: the rules that are not just fields."""
    if isinstance(answer, list):
        return [as_lowered(key, one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    found = {name: as_lowered(key, value) for name, value in answer.items()}
    if "ErrorCode" in found:
        found["ErrorCode"] = ERROR_CODES.get(ApiKey(key), {}).get(
            found["ErrorCode"], found["ErrorCode"]
        )
    if key == ApiKey.OFFSET_FETCH and "CommittedOffset" in found and found["CommittedOffset"] < 0:
        found["ErrorCode"] = found["ErrorCode"] or 3
    if "ConfigSource" in found and "ReadOnly" in found:
        found["IsDefault"] = found["ConfigSource"] == 5
    return found


@pytest.mark.parametrize(("key", "version"), KNOWN)
def test_a_raised_request_says_the_same(key: ApiKey, version: int) -> None:
    fields, to = definition(key, "Request"), CONSUMERS[key].to
    seen = 0
    for seed in SEEDS:
        w = Writer()
        asked = invent(fields, version, Inventor(seed), w)
        r = Reader(raise_request(CONSUMERS[key], version, w.getvalue()))
        raised = read(fields, to, r)
        r.finish()
        assert differences(asked, raised, APIS[key].name) == []
        seen += len(str(asked))
    assert seen > 200


@pytest.mark.parametrize(("key", "version"), KNOWN)
def test_a_lowered_answer_says_the_same(key: ApiKey, version: int) -> None:
    fields, to = definition(key, "Response"), CONSUMERS[key].to
    for seed in SEEDS:
        w = Writer()
        asked = invent(fields, to, Inventor(seed), w)
        r = Reader(lower_answer(CONSUMERS[key], version, w.getvalue()))
        lowered = read(fields, version, r)
        r.finish()
        assert differences(as_lowered(key, asked), lowered, APIS[key].name) == []


def test_each_version_that_kafka_removed_is_in_the_table() -> None:
    """Between brokers: WriteTxnMarkers and AlterPartition. No client sends them."""
    removed = {
        key: api.min_version
        for key, api in APIS.items()
        if api.min_version > 0 and key < ApiKey.ELECT_LEADERS
    }
    raised = {int(key): one for key, one in {**PRODUCERS, **CONSUMERS}.items()}
    assert set(removed) - set(raised) == {ApiKey.WRITE_TXN_MARKERS}
    for key, one in raised.items():
        assert one.oldest == 0
        assert removed[key] == one.first_kept <= one.to <= APIS[key].max_version
        if one.requests:
            assert len(one.requests) == len(one.answers) == one.to


@pytest.mark.parametrize(("key", "version"), CASES)
def test_damage_is_a_protocol_error(key: ApiKey, version: int) -> None:
    """Each cut, and bytes turned at random: nothing else is raised, and a cut is always found."""
    rng = random.Random(key * 10 + version)
    raised = CONSUMERS[key]
    for translate, steps, side in (
        (raise_request, raised.requests[version], "Request"),
        (lower_answer, raised.answers[version], "Response"),
    ):
        if steps is None:
            assert translate(raised, version, b"anything") == b"anything"
            continue
        w = Writer()
        invent(definition(key, side), version if side == "Request" else raised.to, Inventor(3), w)
        whole = w.getvalue()
        for end in range(len(whole)):
            with pytest.raises(ProtocolError):
                translate(raised, version, whole[:end])
        for _ in range(300):
            turned = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                turned[rng.randrange(len(turned))] = rng.randrange(256)
            with contextlib.suppress(ProtocolError):
                translate(raised, version, turned)


@pytest.mark.parametrize(("key", "version"), KNOWN)
def test_bytes_after_a_request_are_refused_and_after_an_answer_ignored(
    key: ApiKey, version: int
) -> None:
    raised = CONSUMERS[key]
    if raised.requests[version - raised.oldest] is not None:
        w = Writer()
        invent(definition(key, "Request"), version, Inventor(1), w)
        with pytest.raises(ProtocolError, match="bytes after the end"):
            raise_request(raised, version, w.getvalue() + b"\0")
    if raised.answers[version - raised.oldest] is not None:
        w = Writer()
        invent(definition(key, "Response"), raised.to, Inventor(1), w)
        body = w.getvalue()
        assert lower_answer(raised, version, body + b"\0\xff") == lower_answer(
            raised, version, body
        )


def test_elements_are_bounded() -> None:
    """An array of a request may announce as many elements as it has bytes."""
    topics = struct.pack(">i", 3) + b"".join(struct.pack(">h1sii", 1, b"t", 1, n) for n in range(3))
    raised = CONSUMERS[ApiKey.OFFSET_FETCH]
    body = struct.pack(">h1s", 1, b"g") + topics
    assert raise_request(raised, 0, body, max_elements=6) == body
    leader_epochs = struct.pack(">ih1sii", 1, 1, b"t", 2, 0) + bytes(12)
    assert raise_request(
        CONSUMERS[ApiKey.OFFSET_FOR_LEADER_EPOCH], 0, leader_epochs, max_elements=3
    )
    with pytest.raises(ProtocolError, match="more topics or partitions than are allowed"):
        raise_request(CONSUMERS[ApiKey.OFFSET_FOR_LEADER_EPOCH], 0, leader_epochs, max_elements=2)


# ---- ListOffsets ---------------------------------------------------------------------------------


def list_offsets(*parts: tuple[int, int, int]) -> bytes:
    """Return a request of version 0 for topic t: partition, timestamp, max_num_offsets."""
    body = b"".join(struct.pack(">iqi", *part) for part in parts)
    return struct.pack(">iih1si", -1, 1, 1, b"t", len(parts)) + body


def offsets_answer(*parts: tuple[int, int, int]) -> bytes:
    """Return an answer of version 1: partition, error code, offset."""
    body = b"".join(
        struct.pack(">ihqq", partition, code, -1, offset) for partition, code, offset in parts
    )
    return struct.pack(">ih1si", 1, 1, b"t", len(parts)) + body


def old_offsets(body: bytes) -> dict[int, tuple[int, list[int]]]:
    r = Reader(body)
    (topic,) = read(definition(ApiKey.LIST_OFFSETS, "Response"), 0, r)["Topics"]
    r.finish()
    return {
        one["PartitionIndex"]: (one["ErrorCode"], one["OldStyleOffsets"])
        for one in topic["Partitions"]
    }


def test_a_raised_list_offsets_says_the_same() -> None:
    fields = definition(ApiKey.LIST_OFFSETS, "Request")
    for seed in SEEDS:
        w = Writer()
        asked = invent(fields, 0, Inventor(seed), w)
        request = OldListOffsets(w.getvalue(), max_partitions=100)
        assert differences(asked, read(fields, 1, Reader(request.raised()))) == []
        for timestamp in (LATEST, EARLIEST):
            question = read(fields, 1, Reader(request.raised(timestamp)))
            for topic in asked["Topics"]:
                for part in topic["Partitions"]:
                    part["Timestamp"] = timestamp
            assert differences(asked, question) == []


def test_offsets_are_arrays_as_many_as_are_asked_for() -> None:
    now = 1_700_000_000_000
    request = OldListOffsets(
        list_offsets(
            (0, LATEST, 1),
            (1, EARLIEST, 5),
            (2, now, 1),
            (3, now, 2),
            (4, LATEST, 9),
            (5, LATEST, 0),
        ),
        max_partitions=7,
    )
    assert request.questions() == [LATEST, EARLIEST]
    request.shrink()
    assert request.questions() == [LATEST, EARLIEST]
    request.note(LATEST, offsets_answer(*((n, 0, 100 + n) for n in range(6))))
    request.note(EARLIEST, offsets_answer(*((n, 0, 10 + n) for n in range(6))))
    answer = offsets_answer((0, 0, 100), (1, 0, 11), (2, 0, -1), (3, 0, 50), (4, 78, -1), (5, 0, 7))
    assert old_offsets(request.lowered(answer)) == {
        0: (0, [100]),
        1: (0, [11]),
        2: (0, [102]),  # no record is as late: the end
        3: (0, [50, 13]),
        4: (5, []),
        5: (0, []),
    }


def test_one_offset_of_an_end_needs_no_question() -> None:
    request = OldListOffsets(list_offsets((0, LATEST, 1), (1, EARLIEST, 2)), max_partitions=3)
    assert request.questions() == []
    assert old_offsets(request.lowered(offsets_answer((1, 0, 3), (0, 0, 3)))) == {
        0: (0, [3]),
        1: (0, [3]),
    }
    with pytest.raises(ProtocolError, match="was not asked for"):
        request.lowered(offsets_answer((2, 0, 3)))


def test_a_damaged_list_offsets_is_a_protocol_error() -> None:
    body = list_offsets((0, LATEST, 1), (1, 5, 2))
    request = OldListOffsets(body, max_partitions=3)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            OldListOffsets(body[:end], max_partitions=3)
    with pytest.raises(ProtocolError, match="more topics or partitions than are allowed"):
        OldListOffsets(body, max_partitions=2)
    with pytest.raises(ProtocolError, match="bytes after the end"):
        OldListOffsets(body + b"\0", max_partitions=100)
    answer = offsets_answer((0, 0, 3), (1, 0, 3))
    for end in range(len(answer)):
        with pytest.raises(ProtocolError):
            request.lowered(answer[:end])
    assert request.lowered(answer + b"\0") == request.lowered(answer)


# ---- Fetch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_raised_fetch_says_the_same(version: int) -> None:
    fields = definition(ApiKey.FETCH, "Request")
    for seed in SEEDS:
        w = Writer()
        asked = invent(fields, version, Inventor(seed), w)
        request = OldFetch(w.getvalue(), version, max_partitions=100)
        offsets = [one.offset for one in request.partitions]
        r = Reader(request.raised(offsets, 1 << 40, 1))
        raised = read(fields, CONSUMERS[ApiKey.FETCH].to, r)
        r.finish()
        asked |= {
            "IsolationLevel": 1,
            "SessionId": 0,
            "SessionEpoch": -1,
            "ForgottenTopicsData": [],
        }
        asked.setdefault("MaxBytes", 0x7FFFFFFF)
        for topic in asked["Topics"]:
            for partition in topic["Partitions"]:
                partition |= {"CurrentLeaderEpoch": -1, "LogStartOffset": -1}
        assert asked == raised


def test_a_raised_fetch_asks_for_other_offsets_and_less() -> None:
    body = struct.pack(">iiiih1siiqiiqi", -1, 5, 1, 1, 1, b"t", 2, 0, 7, 1 << 30, 1, 8, 100)
    fields = definition(ApiKey.FETCH, "Request")
    request = OldFetch(body, 0, max_partitions=3)
    (topic,) = read(fields, 10, Reader(request.raised([7, 99], 1 << 20, 0)))["Topics"]
    found = [
        (one["Partition"], one["FetchOffset"], one["PartitionMaxBytes"])
        for one in topic["Partitions"]
    ]
    assert found == [(0, 7, 1 << 20), (1, 99, 100)]
    with pytest.raises(ProtocolError, match="more topics or partitions than are allowed"):
        OldFetch(body, 0, max_partitions=2)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            OldFetch(body[:end], 0, max_partitions=100)
    with pytest.raises(ProtocolError, match="bytes after the end"):
        OldFetch(body + b"\0", 0, max_partitions=100)


@pytest.mark.parametrize("version", range(4))
def test_a_lowered_fetch_answer_says_the_same(version: int) -> None:
    fields, to = definition(ApiKey.FETCH, "Response"), CONSUMERS[ApiKey.FETCH].to
    for seed in SEEDS:
        w = Writer()
        asked = invent(fields, to, Inventor(seed), w)
        body = w.getvalue()
        answer = read_answer(body)
        assert read_answer(body + b"\0") == answer
        assert answer.error_code == asked["ErrorCode"]
        writer = AnswerWriter(answer, version, 77)
        for n, fetched in enumerate(answer.partitions):
            writer.put(fetched, fetched.error_code, [bytes([n % 256])] * n)
        frame = b"".join(writer.finish())
        assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 77)
        r = Reader(frame[8:])
        lowered = read(fields, version, r)
        r.finish()
        assert ("ThrottleTimeMs" in lowered) == (version >= 1)
        wanted = [part for topic in asked["Responses"] for part in topic["Partitions"]]
        for part in wanted:
            for name in ("LastStableOffset", "LogStartOffset", "AbortedTransactions"):
                del part[name]
            part["ErrorCode"] = ERROR_CODES[ApiKey.FETCH].get(part["ErrorCode"], part["ErrorCode"])
        found = [part for topic in lowered["Responses"] for part in topic["Partitions"]]
        for n, part in enumerate(found):
            assert bytes(part.pop("Records")) == bytes([n % 256]) * n
        assert found == [
            {name: value for name, value in part.items() if name != "Records"} for part in wanted
        ]
        assert [one["Topic"] for one in lowered["Responses"]] == [
            one["Topic"] for one in asked["Responses"]
        ]


def test_a_damaged_fetch_answer_is_a_protocol_error() -> None:
    w = Writer()
    invent(definition(ApiKey.FETCH, "Response"), 10, Inventor(5), w)
    whole = w.getvalue()
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            read_answer(whole[:end])
