"""A certificate for the gate, and the gate's own for its Apache Kafka broker: whom the broker sees
is the gate.
"""

from __future__ import annotations

import os
import uuid

import pytest
from confluent_kafka import Producer

from tests.support.topics import consumed
from tests.system.auth.conftest import Guarded
from tests.system.auth.gates import RunningSettings

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_there_and_back(guarded: Guarded, codec: str) -> None:
    own = guarded.certificates
    tls = own.pair("server") | {"client_ca": str(own.ca)}
    client_tls = own.pair("client") | {"ca": str(own.ca)}
    rules = [{"match": "tls-*", "max.message.bytes": 900_000}]
    values = [os.urandom(size) for size in (10, 1000, 200_000, 800_000)]
    with RunningSettings(
        guarded.tls, tls=tls, upstream_tls=client_tls, topics={"policies": rules}
    ) as gate:
        who = {"bootstrap.servers": gate.bootstrap, "log_level": 0, **own.librdkafka("client")}
        topic = f"tls-{uuid.uuid4().hex[:8]}"
        errors: list[str | None] = []
        producer = Producer(
            {
                **who,
                "linger.ms": 0,
                "compression.type": codec,
                "enable.idempotence": True,
                "message.max.bytes": 2_000_000,
            }
        )
        for value in [*values, os.urandom(950_000), b"last"]:
            producer.produce(
                topic, value, on_delivery=lambda error, _: errors.append(error and error.name())
            )
            assert producer.flush(20) == 0
        assert errors == [None, None, None, None, "MSG_SIZE_TOO_LARGE", None]
        assert consumed(who, topic, 5) == [*values, b"last"]
        assert gate.gate.counters.partitions_refused == {"batch-too-large": 1}
        assert set(gate.gate.proxies["default"].listening) == {1}
