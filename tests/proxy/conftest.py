"""What holds for all tests of the gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kafka_broker import KafkaBroker
from tests.support.fixtures import poisoned, running_kafka  # noqa: F401


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka() as running:
        yield running
