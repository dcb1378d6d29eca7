"""docs/reference/library/consumer.md: its functions do what they say, at a real broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from batchval.core.fetched import walk_fetched
from batchval.fetch import Consumer, ConsumerOptions
from tests.system.fetch.test_consumer import filled, made, values
from tests.system.interop.kafka_broker import KafkaBroker

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "library" / "consumer.md"


def functions() -> dict[str, Any]:
    (block,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {
        "Consumer": Consumer,
        "ConsumerOptions": ConsumerOptions,
        "walk_fetched": walk_fetched,
    }
    exec(block, names)
    return names


@pytest.mark.jvm
async def test_the_examples(kafka: KafkaBroker) -> None:
    topic = made(kafka, 2)
    filled(kafka, topic, values(300), 0, **{"compression.type": "lz4"})
    filled(kafka, topic, values(200), 1)
    assert await functions()["count"](kafka.bootstrap, topic) == 500
    assert sorted(await functions()["follow"](kafka.bootstrap, topic, f"g-{topic}", 500)) == sorted(
        values(300) + values(200)
    )


def test_every_name_of_the_page_is_the_consumers() -> None:
    text = PAGE.read_text("utf-8")
    names = re.findall(r"`([a-z_]+)(?:\([a-z_, ]*\))?`", text)
    assert len(names) > 10
    for name in names:
        known = hasattr(Consumer, name) or name in ConsumerOptions.__dataclass_fields__
        assert known or name in ("records", "walk_fetched"), name
