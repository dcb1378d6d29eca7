"""Produce requests with any bytes and any tags, sent by a connection of a known principal."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from batchval.core.claims import TAG
from batchval.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.ports import free_port
from tests.support.proxy import read_frame
from tests.system.interop.kafka_broker import KafkaBroker

__all__ = ["PASSWORD", "Answer", "Connection", "Part", "listen_for_users"]

VERSION = 12
PASSWORD = "secret"
PATIENCE = 60  # seconds
_SASL_HANDSHAKE, _SASL_AUTHENTICATE, _INIT_PRODUCER_ID = 17, 36, 22
_BOUNDS = re.compile(r"\[\d+, \d+\]")
_PARTITION = re.compile(r"partition [a-z]+-[a-z]+-\d+")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Part(NamedTuple):
    """One batch for a partition. ``tag``: the bytes of field 25206, None for no such field."""

    topic: str
    records: bytes
    tag: bytes | None = None
    partition: int = 0


class Answer(NamedTuple):
    """What a broker answers to one batch. ``base_offset`` is -1 where it refuses the batch."""

    error_code: int
    base_offset: int
    record_errors: tuple[tuple[int, str | None], ...]
    error_message: str | None
    log_append_time: int

    @property
    def verdict(self) -> tuple[object, ...]:
        """Return all columns except the log position, the topic's own, and those that follow the
        clock.
        """
        errors = tuple((index, _general(text)) for index, text in self.record_errors)
        return self.error_code, errors, _general(self.error_message), self.log_append_time


def _general(text: str | None) -> str | None:
    """Return a message without the partition's name and the bounds of timestamps."""
    return text and _PARTITION.sub("partition", _BOUNDS.sub("bounds", text))


class Connection:
    """A connection to one broker, plain or TLS, without or with a user of SASL PLAIN.

    ``version`` is that of Produce. Requests may be pipelined: `send`, `send`, `receive`, `receive`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        user: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        version: int = VERSION,
    ) -> None:
        self.version = version
        self.sent = 0
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        if user is not None:
            self._authenticate(user)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request of a version without tagged fields, and return the answer's body."""
        self.sent += 1
        frame = struct.pack(">hhih4s", key, version, self.sent, 4, b"test") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = read_frame(self.socket)
        assert struct.unpack_from(">i", answer)[0] == self.sent
        return answer[4:]

    def _authenticate(self, user: str) -> None:
        (error,) = struct.unpack_from(
            ">h", self._ask(_SASL_HANDSHAKE, 1, struct.pack(">h5s", 5, b"PLAIN"))
        )
        assert error == 0, error
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = self._ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        assert answer[:2] == b"\0\0", answer

    def producer_id(self) -> tuple[int, int]:
        """Return a new producer id and its epoch."""
        answer = self._ask(_INIT_PRODUCER_ID, 1, struct.pack(">hi", -1, 60_000))
        error, producer_id, epoch = struct.unpack_from(">4xhqh", answer)
        assert error == 0, error
        return producer_id, epoch

    def frame(self, parts: Iterable[Part], acks: int = -1) -> bytes:
        """Return one Produce request with these batches, its length included."""
        self.sent += 1
        topics: dict[str, TopicProduceData] = {}
        for part in parts:
            tags = () if part.tag is None else ((TAG, part.tag),)
            data = topics.setdefault(
                part.topic, TopicProduceData(name=part.topic, partition_data=[])
            )
            data.partition_data.append(
                PartitionProduceData(
                    index=part.partition, records=part.records, unknown_tagged_fields=tags
                )
            )
        request = ProduceRequest(
            api_version=self.version, acks=acks, timeout_ms=30_000, topic_data=list(topics.values())
        )
        return b"".join(request.encode(self.sent, "test"))

    def send(self, *parts: Part, acks: int = -1) -> None:
        self.socket.sendall(self.frame(parts, acks))

    def receive(self) -> dict[tuple[str, int], Answer]:
        """Return the answers of one request by topic and partition."""
        response = ProduceResponse.decode(read_frame(self.socket), self.version)
        return {
            (topic.name, one.index): Answer(
                one.error_code,
                one.base_offset,
                tuple(
                    (error.batch_index, error.batch_index_error_message)
                    for error in one.record_errors
                ),
                one.error_message,
                one.log_append_time_ms,
            )
            for topic in response.responses
            for one in topic.partition_responses
        }

    def produce(
        self, topic: str, records: bytes, tag: bytes | None = None, partition: int = 0
    ) -> Answer:
        """Send one batch and return what the broker answers to it."""
        self.send(Part(topic, records, tag, partition))
        return self.receive()[topic, partition]

    def produce_all(
        self, requests: Sequence[Sequence[Part]], in_flight: int = 5
    ) -> list[dict[tuple[str, int], Answer]]:
        """Send requests, of which some are in flight at any time, and return their answers."""
        answers = []
        for number, parts in enumerate(requests):
            if number >= in_flight:
                answers.append(self.receive())
            self.send(*parts)
        while len(answers) < len(requests):
            answers.append(self.receive())
        return answers


def listen_for_users(broker: KafkaBroker, users: Iterable[str]) -> tuple[str, int]:
    """Add a listener SASL_PLAINTEXT to a broker that has not started; return its address.

    All users have the same password.
    """
    port = free_port()
    advertised = f"PLAINTEXT://{broker.host}:{broker.port},SASL_PLAINTEXT://{broker.host}:{port}"
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    broker.config |= {
        "listeners": f"{advertised},CONTROLLER://{broker.host}:{broker.controller_port}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {passwords};",
    }
    return broker.host, port
