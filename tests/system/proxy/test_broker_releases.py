"""validation.kafka_version: auto, in front of brokers of several releases of Kafka."""

from __future__ import annotations

import asyncio

import pytest
from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[import-not-found]

from batchval.proxy.life.gate import Gate
from batchval.proxy.produce.broker_releases import BrokerAnswer, counted_as, read_broker
from batchval.proxy.settings.config import Settings, Upstream
from batchval.proxy.settings.setting_types import Address
from tests.support.fixtures import running_kafka
from tests.support.network import until
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.jvm]


def upstream(broker: KafkaBroker) -> dict[str, object]:
    return {"bootstrap": broker.bootstrap, "admin": {"mechanism": "NONE"}}


async def asked(broker: KafkaBroker) -> BrokerAnswer:
    at = Address(broker.host, broker.port)
    settings = Upstream.model_validate(upstream(broker))
    answer = await read_broker(settings, None, at, None)
    while answer.configurations is None:  # the topic is new
        await asyncio.sleep(0.1)
        answer = await read_broker(settings, None, at, None)
    return answer


def create_topic(broker: KafkaBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic("orders", 1, 1)])
    admin.close()


async def found_by_a_gate(broker: KafkaBroker, release: str) -> BrokerAnswer:
    """Return what the broker says, when a gate in front of it answers as this release."""
    await asyncio.to_thread(create_topic, broker)
    answer = await asyncio.wait_for(asked(broker), 60)
    settings = Settings.model_validate(
        {
            "listeners": [{"address": "127.0.0.1:0", "first_broker_port": 0}],
            "upstream": upstream(broker),
            "validation": {"kafka_version": "auto"},
            "metrics": {"address": None},
        }
    )
    gate = Gate(settings)
    await gate.start()
    try:
        await until(lambda: gate.parts.release.name == release, 30)
        assert gate.broker_releases.by_text() == {release: [1]}
        return answer
    finally:
        await gate.stop(0)


def test_the_newest_kafka_names_its_release() -> None:
    with running_kafka() as broker:
        answer = asyncio.run(found_by_a_gate(broker, "4.4.0"))
        assert (answer.metadata_version, answer.problem) == (33, "")
        assert answer.finalized is not None
        assert answer.finalized[1] == 33
        assert counted_as(answer).text == "4.4.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "level", "release"), [("3.9", 21, "3.9.2"), ("4.1", 27, "4.1.2")]
)
def test_older_releases_of_kafka_name_theirs(profile: str, level: int, release: str) -> None:
    with running_kafka(profile=profile) as broker:
        answer = asyncio.run(found_by_a_gate(broker, release))
        assert answer.metadata_version == level
        assert counted_as(answer).text == release
