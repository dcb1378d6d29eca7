"""A real client of 2015 in front of a broker of Kafka 4: the gate names it and what it needs."""

from __future__ import annotations

import json
import urllib.request
import uuid
from pathlib import Path

import pytest

from tests.support.old_clients import run_script
from tests.support.topics import make_topic
from tests.system.auth.conftest import Guarded
from tests.system.auth.gates import RunningSettings

pytestmark = [pytest.mark.jvm, pytest.mark.long]

SCRIPT = """
    import sys
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    bootstrap, topic = sys.argv[1:]
    old = {"bootstrap_servers": bootstrap, "api_version": (0, 9), "request_timeout_ms": 4000}
    producer = KafkaProducer(client_id="writer", retries=0, max_block_ms=4000, **old)
    try:
        producer.send(topic, b"lost").get(6)
        print("acknowledged")
    except KafkaError:
        print("not acknowledged")
    producer.close(1)
    consumer = KafkaConsumer(client_id="reader", consumer_timeout_ms=2000, **old)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    print(len(list(consumer)))
    consumer.close()
"""


def test_kafka_python_as_of_0_9_is_turned_away_and_named(
    guarded: Guarded, old_clients: Path
) -> None:
    # kafka-python 2.0.2 writes with Produce 1 and reads with Fetch 1; the broker is not asked for
    # its versions.
    topic = f"old-{uuid.uuid4().hex[:8]}"
    make_topic(guarded.plain, topic)
    with RunningSettings(guarded.plain, metrics={"address": "127.0.0.1:0"}) as gate:
        assert run_script(old_clients, SCRIPT, gate.bootstrap, topic) == "not acknowledged\n0\n"
        assert gate.gate.metrics_at is not None
        url = f"http://{gate.gate.metrics_at}/clients?old=true"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = {row["client_id"]: row for row in json.load(answer)["clients"]}
        closed = gate.gate.counters.connections_closed
    assert set(found) == {"reader", "writer"}
    olds = {
        name: {(use["api"], use["version"]) for use in row["uses"] if use["old"]}
        for name, row in found.items()
    }
    assert olds == {"writer": {("Produce", 1)}, "reader": {("Fetch", 1)}}
    assert all(
        row["address"] == "127.0.0.1" and row["software_name"] is None for row in found.values()
    )
    assert closed["version_too_old"] >= 2
    assert "produce_malformed" not in closed
