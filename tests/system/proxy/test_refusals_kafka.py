"""What a client reads of refused records: the gate's sentences are the broker's."""

from __future__ import annotations

import re
import socket
import time

import pytest

from batchval.policy import TopicPolicy
from batchval.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from batchval.proxy.settings.options import TopicPolicies
from tests.support.proxy import RunningProxy, batch, produce_frame, read_frame
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.long

HOUR = 3_600_000


def answer_to(address: tuple[str, int], topic: str, records: bytes) -> PartitionProduceResponse:
    with socket.create_connection(address, 30) as sock:
        sock.sendall(produce_frame(1, (topic, 0, records)))
        return ProduceResponse.decode(read_frame(sock), 9).responses[0].partition_responses[0]


def texts(part: PartitionProduceResponse) -> tuple[int, str, list[tuple[int, str]]]:
    """Return the error and all texts, with 0 for the clock of who has answered."""
    errors = [
        (one.batch_index, re.sub(r"\[-?\d+, \d+\]", "[0, 0]", one.batch_index_error_message or ""))
        for one in part.record_errors
    ]
    return part.error_code, part.error_message or "", errors


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("kind", ["keyless", "old"])
def test_the_sentences_are_those_of_the_broker(broker: KafkaBroker, kind: str, count: int) -> None:
    settings = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR)}
    topic = make_topic(broker.bootstrap, f"refused-{kind}-{count}", **settings)
    policy = TopicPolicy(cleanup_policy="compact", message_timestamp_before_max_ms=HOUR)
    now = int(time.time() * 1000)
    is_keyless = kind == "keyless"
    records = batch(
        *[b"v"] * count,
        key=None if is_keyless else b"k",
        timestamp=now if is_keyless else now - 2 * HOUR,
    )
    host, port = broker.bootstrap.rsplit(":", 1)
    theirs = texts(answer_to((host, int(port)), topic, records))
    with RunningProxy(broker.bootstrap, policies=TopicPolicies(policy)) as proxy:
        assert texts(answer_to(proxy.address, topic, records)) == theirs
    assert theirs[0] == (87 if is_keyless else 32)
    assert len(theirs[2]) == count
