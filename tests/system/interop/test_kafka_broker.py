"""The broker that other tests build on: real records go in and come out, and survive kill -9."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import running_kafka
from tests.system.interop import kafka_broker, kafka_java
from tests.system.interop.kafka_broker import BrokerError, KafkaBroker, ToolMissing, is_ready

kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka(config={"num.partitions": 1}) as running:
        yield running


def produce(broker: KafkaBroker, value: bytes) -> int:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    try:
        return int(
            producer.send("echo", key=b"key", value=value, partition=0).get(timeout=30).offset
        )
    finally:
        producer.close()


def consume(broker: KafkaBroker, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    try:
        consumer.assign([kafka.TopicPartition("echo", 0)])
        consumer.seek_to_beginning()
        return [record.value for _, record in zip(range(count), consumer, strict=False)]
    finally:
        consumer.close()


def test_a_record_goes_in_and_survives_kill(broker: KafkaBroker) -> None:
    assert produce(broker, b"before") == 0
    assert consume(broker, 1) == [b"before"]
    address = broker.bootstrap
    broker.kill()
    assert not broker.running
    broker.start()
    assert broker.bootstrap == address
    assert produce(broker, b"after") == 1
    assert consume(broker, 2) == [b"before", b"after"]


def test_a_paused_broker_answers_nothing(broker: KafkaBroker) -> None:
    broker.pause()
    assert not is_ready(broker.host, broker.port)
    broker.resume()  # comes back when the controller has let it in again
    assert is_ready(broker.host, broker.port)


def test_an_invalid_setting_is_reported_with_the_log(broker: KafkaBroker, tmp_path: Path) -> None:
    words = r"(?s)(failed|ended before it was ready)\n.*log\.cleaner\.threads"
    with pytest.raises(BrokerError, match=words) as refused:
        KafkaBroker(tmp_path, config={"log.cleaner.threads": "many"}).start()
    assert "\n" not in str(refused.value).split("\n    ")[0]


def test_an_old_or_absent_java_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_java, "java_version", lambda java: 11)
    kafka_broker.find_java.cache_clear()
    try:
        with pytest.raises(ToolMissing, match=r"^Kafka 4.4.0 needs Java 17 or newer: .*$"):
            kafka_broker.find_java()
    finally:
        kafka_broker.find_java.cache_clear()


def test_from_the_shell(broker: KafkaBroker, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.system.interop.kafka_broker", "--dir", str(tmp_path)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as shell:
        assert shell.stdout is not None
        host, port = shell.stdout.readline().strip().split(":")
        assert is_ready(host, int(port))
        shell.terminate()
        assert shell.wait(60) == 0
    assert not is_ready(host, int(port))
