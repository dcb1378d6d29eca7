"""What holds for all tests of the gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchval.protocol.frames import poison_released
from tests.interop.kafka_broker import KafkaBroker, ToolMissing


@pytest.fixture(autouse=True, scope="session")
def poisoned() -> Iterator[None]:
    """Memory that is let go too early is seen in what arrives."""
    before = poison_released(True)
    yield
    poison_released(before)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    try:
        with KafkaBroker() as running:
            yield running
    except ToolMissing as missing:
        pytest.skip(str(missing))
