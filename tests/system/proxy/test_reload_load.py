"""Reloads while producers write to a real broker: nothing is lost, doubled or reordered."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer

from batchval.proxy.settings.loading import settings_from
from tests.support.proxy import eventually
from tests.support.topics import make_topic
from tests.system.auth.gates import RunningSettings
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

RELOADS: Final = 20
#: Records of one transaction.
TRANSACTION: Final = 200
#: Settings that the reloads take in turn: all sound for these producers.
VARIATIONS: Final[list[dict[str, Any]]] = [
    {"topics": {"policies": [{"match": "load-*", "max.message.bytes": 2_000_000}]}},
    {"mode": "observe"},
    {"claims_out": "tag", "claims_in": "verify"},
    {"validation": {"rules": "kafka"}, "limits": {"threads": 3, "max_bytes_held": 128 << 20}},
    {"bridge": ["producers"], "limits": {"max_requests_waiting": 2, "idle_timeout_ms": 60_000}},
]


class Writer(threading.Thread):
    """A producer that writes numbers until it is stopped. ``count``: of those that were
    acknowledged.
    """

    def __init__(self, bootstrap: str, topic: str, *, transactional: bool) -> None:
        super().__init__(daemon=True)
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 1}
        config |= {"compression.type": "lz4", "enable.idempotence": True}
        if transactional:
            config["transactional.id"] = topic
        self.producer = Producer(config)
        self.topic = topic
        self.transactional = transactional
        self.stopped = threading.Event()
        self.errors: list[object] = []
        self.count = 0
        self.acknowledged = 0

    def run(self) -> None:
        try:
            if self.transactional:
                self.producer.init_transactions(30)
            while not self.stopped.is_set():
                self._write()
            if self.producer.flush(30):
                self.errors.append("not all was acknowledged")
        except BaseException as error:
            self.errors.append(error)

    def _write(self) -> None:
        if self.transactional:
            self.producer.begin_transaction()
        for _ in range(TRANSACTION):
            self.producer.produce(self.topic, b"%d" % self.count, on_delivery=self._delivered)
            self.count += 1
        self.producer.poll(0)
        if self.transactional:
            self.producer.commit_transaction(30)
        else:
            self.producer.flush(30)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(error)
        self.acknowledged += 1


def values(bootstrap: str, topic: str) -> Iterator[int]:
    """Read all that is committed, until nothing more comes."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(
        config | {"isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.subscribe([topic])
    while (message := consumer.poll(30)) is not None and not message.error():
        yield int(message.value() or b"")
    consumer.close()


def test_producers_notice_nothing(broker: KafkaBroker) -> None:
    topics = [make_topic(broker.bootstrap, f"load-{uuid.uuid4().hex[:8]}") for _ in range(2)]
    with RunningSettings(broker.bootstrap) as gate:
        bootstrap = gate.bootstrap
        writers = [
            Writer(bootstrap, topic, transactional=bool(n)) for n, topic in enumerate(topics)
        ]
        for writer in writers:
            writer.start()
        for values_of in itertools.islice(itertools.cycle(VARIATIONS), RELOADS):
            before = [writer.acknowledged for writer in writers]
            gate.call(_reloaded(gate, values_of))
            _await(
                lambda before=before: all(
                    w.acknowledged > b for w, b in zip(writers, before, strict=True)
                ),
                writers,
            )
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join(60)
            assert writer.errors == []
        assert gate.gate.counters.connections_closed == {}
        for writer, topic in zip(writers, topics, strict=True):
            assert writer.acknowledged == writer.count > TRANSACTION
            assert list(values(broker.bootstrap, topic)) == list(range(writer.count))


def _await(what: Callable[[], bool], writers: list[Writer]) -> None:
    eventually(lambda: any(writer.errors for writer in writers) or what(), 30)


async def _reloaded(gate: RunningSettings, more: dict[str, Any]) -> None:
    listener = {"address": str(gate.bootstrap), "first_broker_port": 0, "trusted": False}
    bootstrap = str(gate.settings.upstream.bootstrap[0])
    values_of = {
        "mode": "enforce",
        "listeners": [listener],
        "upstream": {"bootstrap": bootstrap},
        "metrics": {"address": None},
    }
    (await gate.gate.prepare(settings_from(values_of | more))).apply()
