"""A runner for librdkafka through confluent-kafka, profile reader.

    python conformance/runners/librdkafka_reader.py

A Consumer with ``check.crcs`` reads each batch from a broker in this process. The broker answers
Metadata and Fetch. Each case has its own consumer, because one may stay without an answer after a
damaged batch. librdkafka has accepted a batch when its position has moved past it without an error.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import sys
import threading
import time
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, TopicPartition

from batchval.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = "t"
#: versions by API key. librdkafka fetches only from a broker that has Produce too, and Fetch 2.
VERSIONS = {0: (0, 8), 1: (0, 11), 3: (0, 9), 18: (0, 3)}
REQUESTS = {
    request.api_key: request for request in (ApiVersionsRequest, MetadataRequest, FetchRequest)
}
#: without an answer of librdkafka within this time the runner ends, and the case has failed
SECONDS = 3.0
CONFIGURATION = {
    "group.id": "conformance",
    "check.crcs": True,
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 10,
    "fetch.error.backoff.ms": 10,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


class Broker:
    """A broker of one partition. ``batch`` is answered once, at offset 0."""

    def __init__(self) -> None:
        self.batch = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rwb")
        while size := stream.read(4):
            header, request = REQUESTS[(frame := self._frame(stream, size))[1]].parse(frame)
            answer = self._answer(request).encode(header.correlation_id, header.api_version)
            stream.write(b"".join(answer))
            stream.flush()

    def _frame(self, stream: Any, size: bytes) -> bytes:
        frame: bytes = stream.read(struct.unpack(">i", size)[0])
        return frame

    def _answer(self, request: Any) -> Any:
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(
                api_keys=[ApiVersion(key, *known) for key, known in VERSIONS.items()]
            )
        if isinstance(request, MetadataRequest):
            return self._metadata()
        return self._fetch(request)

    def _metadata(self) -> MetadataResponse:
        partitions = [MetadataResponsePartition(0, 0, 1, -1, [1], [1])]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, "127.0.0.1", self.port)],
            controller_id=1,
            topics=[MetadataResponseTopic(name=TOPIC, partitions=partitions)],
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        """Answer with the batch at offset 0, and at other offsets with the end of the partition."""
        answers = []
        for topic in request.topics:
            for one in topic.partitions:
                data = b""
                if one.fetch_offset == 0:
                    data, self.batch = self.batch, b""
                end = one.fetch_offset + bool(data)
                answers.append(PartitionData(one.partition, 0, end, end, 0, records=data))
        if not any(one.records for one in answers):
            time.sleep(0.002)
        return FetchResponse(responses=[FetchableTopicResponse(TOPIC, partitions=answers)])


def judge(consumer: Consumer) -> dict[str, Any]:
    """Return the verdict on the batch that the broker holds."""
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        message = consumer.poll(SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            count += 1
        elif error.code() != KafkaError._PARTITION_EOF:
            return {"accept": False, "error": error.str()}
        elif count:
            return {"accept": True, "records": count}
        else:
            # control records are not delivered, but the position moves
            moved = message.offset() not in (0, OFFSET_INVALID)
            return {"accept": True} if moved else {"accept": False, "error": "no progress"}
    raise SystemExit("librdkafka has not answered")


def main() -> None:
    """Judge one case a line."""
    broker = Broker()
    configuration = {**CONFIGURATION, "bootstrap.servers": f"127.0.0.1:{broker.port}"}
    for line in sys.stdin:
        case = json.loads(line)
        broker.batch = base64.b64decode(case["batch"])
        consumer = Consumer(configuration)
        print(json.dumps({"id": case["id"], **judge(consumer)}), flush=True)
        consumer.close()


if __name__ == "__main__":
    main()
