"""What several folders' conftests take in by name, or begin with."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from batchval.protocol.frames import poison_released
from tests.interop.kafka_broker import KafkaBroker, ToolMissing, classpath


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Memory that is let go too early is seen in what arrives: whoever reads such a frame reads
    rubbish.
    """
    before = poison_released(True)
    yield
    poison_released(before)


def needs_kafka() -> None:
    """Skips where neither Java nor Maven can give Kafka's jars."""
    try:
        classpath()
    except ToolMissing as missing:
        pytest.skip(str(missing))


@contextlib.contextmanager
def running_kafka(**options: Any) -> Iterator[KafkaBroker]:
    """``KafkaBroker`` for the time of a fixture; skips where there can be none."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(KafkaBroker(**options))
        except ToolMissing as missing:
            pytest.skip(str(missing))
        yield broker


def take_sigint() -> None:
    """In a child before it starts: tests that run in the background of a shell have SIGINT ignored,
    and hand it on.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
