"""A broker in the same process whose answers to one API are spoiled: cut, changed, senseless, late.

    request ──▶ honest answer ──▶ Spoiler: the n-th answer to one API is not what it should be

Time is simulated, so an answer that never comes costs nothing.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import importlib
import pkgutil
import random
import struct
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from batchval.protocol import messages
from tests.evidence.hostile.wire import broken
from tests.support.batches import batch, records
from tests.support.broker_node import REQUESTS
from tests.unit.producer.simulation import ClientEnd, SimulatedLoop
from tests.unit.protocol.values import structs

__all__ = ["KINDS", "PARTITIONS", "RECORDS", "TOPIC", "InlineLoop", "SpoiledPeer", "Spoiler"]

TOPIC: Final = "t"
PARTITIONS: Final = 2
RECORDS: Final = 10  # of each partition
KINDS: Final = ("cut", "broken", "senseless", "framed")
#: All messages and the structs in them.
m: Any = SimpleNamespace()
for _module in pkgutil.iter_modules(messages.__path__):
    vars(m).update(vars(importlib.import_module(f"{messages.__name__}.{_module.name}")))

_KEYS: Final = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 17, 18, 22, 24, 26, 32, 36)
#: The oldest versions that every client here speaks.
_OLDEST: Final = {0: 3, 1: 4, 2: 2, 3: 4, 8: 2, 9: 1, 10: 1, 17: 1, 32: 1, 36: 1}
_MAX_REQUESTS: Final = 20_000
_PASSWORD: Final = b"s3cret"

_NUMBERS: Final = (-1, 0, 1, 2, -2, 7, 35, 99, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63))
_TEXTS: Final = ("", "t", "unknown", "x" * 300, "\x00", "a\nb", "1.2.3.4", "é" * 40)
_CONFIGS: Final = {"max.message.bytes": "1000", "cleanup.policy": "delete"}


class InlineLoop(SimulatedLoop):
    """A simulated loop that calls what belongs in a thread at once. ``peer`` takes connections."""

    peer: SpoiledPeer

    def __init__(self) -> None:
        super().__init__(self._connected)

    def _connected(self, port: int, end: ClientEnd) -> None:
        self.peer.connect(port, end)

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


class Spoiler:
    """What becomes of the answers to one API.

    ``first``, ``times``  the answers first to first + times - 1 are spoiled
    ``at``                byte at which an answer is cut; None: by chance
    """

    def __init__(
        self, rng: random.Random, key: int, kind: str, first: int, times: int, at: int | None = None
    ) -> None:
        self.rng = rng
        self.key, self.kind, self.first, self.times, self.at = key, kind, first, times, at
        self.seen = self.spoiled = self.largest = 0
        self.did = ""

    def takes(self, key: int, size: int) -> bool:
        """Return whether the next answer to this API, of so many bytes, is spoiled."""
        if key != self.key:
            return False
        self.largest = max(self.largest, size)
        self.seen += 1
        return self.first < self.seen <= self.first + self.times

    def frame(self, response: Any, correlation_id: int, version: int) -> list[bytes | None]:
        """Return what is sent in place of the answer; None: the connection ends there."""
        self.spoiled += 1
        whole = b"".join(response.encode(correlation_id, version))
        return getattr(self, f"_{self.kind}")(response, whole, correlation_id, version)

    def _cut(self, _: Any, whole: bytes, *__: int) -> list[bytes | None]:
        at = self.rng.randrange(len(whole) + 1) if self.at is None else self.at
        self.did = f"cut at {at}"
        if self.rng.random() < 0.3 and self.at is None:
            return [whole[:at], None]
        body = whole[4 : max(at, 4)]
        return [struct.pack(">i", len(body)) + body]

    def _broken(self, _: Any, whole: bytes, *__: int) -> list[bytes | None]:
        body = broken(self.rng, whole[8:])
        self.did = body.hex()
        return [struct.pack(">i", len(body) + 4) + whole[4:8] + body]

    def _senseless(
        self, response: Any, whole: bytes, correlation_id: int, version: int
    ) -> list[bytes | None]:
        for _ in range(4):
            changed = copy.deepcopy(response)
            self.did = ", ".join(self._change(changed) for _ in range(self.rng.choice((1, 1, 2))))
            try:
                return [b"".join(changed.encode(correlation_id, version))]
            except Exception:  # a value that its field cannot hold: another one
                continue
        return self._broken(response, whole)

    def _change(self, response: Any) -> str:
        rng = self.rng
        one = rng.choice(list(structs(response)))
        name = rng.choice([n for n in one.__match_args__ if n not in ("unknown_tagged_fields",)])
        value = getattr(one, name)
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, int):
            value = rng.choice(_NUMBERS)
        elif isinstance(value, str) or value is None:
            value = rng.choice((None, *_TEXTS))
        elif isinstance(value, list):
            value = rng.choice(([], value * 2, value[:-1], value[::-1]))
        elif isinstance(value, bytes | memoryview):
            value = rng.choice((b"", bytes(value)[:-1], broken(rng, bytes(value)), bytes(16)))
        setattr(one, name, value)
        return f"{type(one).__name__}.{name} = {value!r:.60}"

    def _framed(self, _: Any, whole: bytes, *__: int) -> list[bytes | None]:
        what = self.rng.randrange(9)
        body = whole[4:]
        wrong = struct.pack(">i", self.rng.choice((-1, 0, 7, 2**31 - 1, -(2**31))))
        size = self.rng.choice((-1, -(2**31), 2**31 - 1, 101 << 20, 0, 1, 3, len(body) + 1))
        found: list[list[bytes | None]] = [
            [whole[:4] + wrong + body[4:]],
            [struct.pack(">i", size) + body],
            [None],
            [whole[:-1], None],
            [b""],  # never an answer
            [whole, whole],
            [whole + whole[:6], None],
            [b"HTTP/1.1 400 Bad Request\r\n\r\n", None],
            [self.rng.randbytes(40)],
        ]
        self.did = f"frame {what}"
        return found[what]


class SpoiledPeer:
    """All brokers of a cluster, on one port.

    ``seen``     counts requests by API
    ``outcome``  what the client's calls came to
    """

    outcome: Any

    def __init__(self, loop: InlineLoop, spoiler: Spoiler, sasl: str = "") -> None:
        loop.peer = self
        self.loop, self.spoiler, self.sasl = loop, spoiler, sasl
        self.seen: Counter[int] = Counter()
        self.problem = ""
        self.committed: dict[tuple[str, int], int] = {}
        self.ends: list[ClientEnd] = []
        self._ranges = {key: _range(spoiler.rng, key) for key in _KEYS}
        self._log = batch(records(RECORDS))
        self._scram: dict[ClientEnd, tuple[str, str]] = {}

    def connect(self, port: int, end: ClientEnd) -> None:
        self.ends.append(end)
        end.receive = lambda frame: self._receive(end, frame)
        end.get_extra_info = lambda name, default=None: (  # type: ignore[method-assign]
            ("127.0.0.1", port) if name == "peername" else default
        )

    def _receive(self, end: ClientEnd, frame: bytes) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        self.seen[key] += 1
        if sum(self.seen.values()) > _MAX_REQUESTS:
            self.problem = f"asks API {key} without a pause"
            raise AssertionError(self.problem)
        try:
            _, request = REQUESTS[key].parse(frame)
            response = self._answer(end, key, version, request)
            whole = b"".join(response.encode(correlation_id, version))
        except Exception as error:  # a fault of this broker, or of a request
            self.problem = f"API {key} version {version}: {error!r}"
            raise
        wait_s = 0.001
        if key == 1 and not any(p.records for t in response.responses for p in t.partitions):
            wait_s = request.max_wait_ms / 1000
        pieces: list[bytes | None] = [whole]
        if self.spoiler.takes(key, len(whole) - 4):
            pieces = self.spoiler.frame(response, correlation_id, version)
        for piece in pieces:
            self.loop.call_later(wait_s, self._deliver, end, piece)

    def _deliver(self, end: ClientEnd, piece: bytes | None) -> None:
        if end.ended:
            return
        if piece is None:
            end.protocol.eof_received()
            end.abort()
        elif hasattr(end.protocol, "get_buffer"):
            end.deliver(piece)
        else:
            end.protocol.data_received(piece)  # a stream's

    def _answer(self, end: ClientEnd, key: int, version: int, request: Any) -> Any:
        made: Callable[..., Any] | None = getattr(self, f"_api_{key}", None)
        assert made is not None, key
        return made(end, version, request)

    def _api_18(self, end: ClientEnd, version: int, request: Any) -> Any:
        api_keys = [m.ApiVersion(key, first, last) for key, (first, last) in self._ranges.items()]
        return m.ApiVersionsResponse(api_keys=api_keys)

    def _api_3(self, end: ClientEnd, version: int, request: Any) -> Any:
        names = [TOPIC] if request.topics is None else [one.name for one in request.topics]
        parts = [m.MetadataResponsePartition(0, n, 1, 3, [1], [1]) for n in range(PARTITIONS)]
        topics = [
            m.MetadataResponseTopic(0, name, b"i" * 16, partitions=parts)
            if name == TOPIC
            else m.MetadataResponseTopic(3, name)
            for name in names
        ]
        brokers = [m.MetadataResponseBroker(n, "127.0.0.1", 9090 + n) for n in (1, 2)]
        return m.MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)

    def _api_22(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.InitProducerIdResponse(producer_id=7, producer_epoch=request.producer_epoch + 1)

    def _api_0(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.ProduceResponse(
            responses=[
                m.TopicProduceResponse(
                    topic.name,
                    partition_responses=[
                        m.PartitionProduceResponse(one.index, base_offset=0)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _api_1(self, end: ClientEnd, version: int, request: Any) -> Any:
        def data(one: Any) -> Any:
            if one.fetch_offset < 0 or one.fetch_offset > RECORDS:
                return m.PartitionData(one.partition, 1, -1)
            is_end = one.fetch_offset == RECORDS
            return m.PartitionData(one.partition, 0, RECORDS, records=b"" if is_end else self._log)

        return m.FetchResponse(
            responses=[
                m.FetchableTopicResponse(
                    topic.topic, partitions=[data(p) for p in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _api_2(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.ListOffsetsResponse(
            topics=[
                m.ListOffsetsTopicResponse(
                    topic.name,
                    [
                        m.ListOffsetsPartitionResponse(
                            p.partition_index, offset=RECORDS if p.timestamp == -1 else 0
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _api_10(self, end: ClientEnd, version: int, request: Any) -> Any:
        keys = request.coordinator_keys if version >= 4 else [request.key]
        found = [m.Coordinator(key, 1, "127.0.0.1", 9091) for key in keys]
        if version >= 4:
            return m.FindCoordinatorResponse(coordinators=found)
        return m.FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=9091)

    def _api_24(self, end: ClientEnd, version: int, request: Any) -> Any:
        results = [
            m.AddPartitionsToTxnTopicResult(
                one.name, [m.AddPartitionsToTxnPartitionResult(n) for n in one.partitions]
            )
            for one in request.v3_and_below_topics
        ]
        return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _api_26(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.EndTxnResponse()

    def _api_11(self, end: ClientEnd, version: int, request: Any) -> Any:
        member = m.JoinGroupResponseMember("m", metadata=request.protocols[0].metadata)
        return m.JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="m", member_id="m", members=[member]
        )

    def _api_14(self, end: ClientEnd, version: int, request: Any) -> Any:
        mine = [one.assignment for one in request.assignments if one.member_id == "m"]
        return m.SyncGroupResponse(assignment=mine[0] if mine else b"")

    def _api_12(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.HeartbeatResponse()

    def _api_13(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.LeaveGroupResponse()

    def _api_8(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.OffsetCommitResponse(
            topics=[
                m.OffsetCommitResponseTopic(
                    t.name,
                    [m.OffsetCommitResponsePartition(p.partition_index) for p in t.partitions],
                )
                for t in request.topics
            ]
        )

    def _api_9(self, end: ClientEnd, version: int, request: Any) -> Any:
        if version < 8:
            return m.OffsetFetchResponse(
                topics=[
                    m.OffsetFetchResponseTopic(
                        t.name,
                        [m.OffsetFetchResponsePartition(n, -1) for n in t.partition_indexes],
                    )
                    for t in request.topics
                ]
            )
        return m.OffsetFetchResponse(
            groups=[
                m.OffsetFetchResponseGroup(
                    g.group_id,
                    [
                        m.OffsetFetchResponseTopics(
                            t.name,
                            partitions=[
                                m.OffsetFetchResponsePartitions(n, -1) for n in t.partition_indexes
                            ],
                        )
                        for t in g.topics
                    ],
                )
                for g in request.groups
            ]
        )

    def _api_32(self, end: ClientEnd, version: int, request: Any) -> Any:
        configs = [m.DescribeConfigsResourceResult(name, value) for name, value in _CONFIGS.items()]
        return m.DescribeConfigsResponse(
            results=[
                m.DescribeConfigsResult(
                    resource_type=2, resource_name=one.resource_name, configs=configs
                )
                for one in request.resources
            ]
        )

    def _api_17(self, end: ClientEnd, version: int, request: Any) -> Any:
        return m.SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256"])

    def _api_36(self, end: ClientEnd, version: int, request: Any) -> Any:
        if self.sasl == "PLAIN":
            return m.SaslAuthenticateResponse()
        token = bytes(request.auth_bytes).decode()
        if token.startswith("n,,"):
            bare = token[3:]
            nonce = dict(one.split("=", 1) for one in bare.split(","))["r"]
            first = f"r={nonce}server,s={b64encode(b'salt').decode()},i=4096"
            self._scram[end] = bare, first
            return m.SaslAuthenticateResponse(auth_bytes=first.encode())
        bare, first = self._scram.get(end, ("", ""))
        salted = _salted()
        message = ",".join((bare, first, token.rpartition(",p=")[0])).encode()
        key = hmac.digest(salted, b"Server Key", "sha256")
        signature = b64encode(hmac.digest(key, message, "sha256"))
        return m.SaslAuthenticateResponse(auth_bytes=b"v=" + signature)


def _range(rng: random.Random, key: int) -> tuple[int, int]:
    """Return the versions of an API: at times those of an older broker."""
    last = REQUESTS[key].max_version
    oldest = _OLDEST.get(key, 0)
    return 0, last if rng.random() < 0.5 else rng.randint(min(oldest, last), last)


def _salted(known: list[bytes] = []) -> bytes:  # noqa: B006 - computed once: 4,096 rounds
    if not known:
        known.append(hashlib.pbkdf2_hmac("sha256", _PASSWORD, b"salt", 4096))
    return known[0]
