"""Hold the fixtures and hooks that conftests of several folders import."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from batchval.protocol.frames import poison_released
from tests.system.interop.kafka_broker import KafkaBroker, ToolMissing, classpath


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Overwrite memory on release, so that a frame that is read too late has wrong bytes."""
    before = poison_released(True)
    yield
    poison_released(before)


def needs_kafka() -> None:
    """Skip if neither Java nor Maven can provide Kafka's jars."""
    try:
        classpath()
    except ToolMissing as missing:
        pytest.skip(str(missing))


@contextlib.contextmanager
def running_kafka(**options: Any) -> Iterator[KafkaBroker]:
    """Run ``KafkaBroker`` for the time of a fixture; skip if it cannot run."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(KafkaBroker(**options))
        except ToolMissing as missing:
            pytest.skip(str(missing))
        yield broker
