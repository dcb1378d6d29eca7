"""One real broker for all files here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import running_kafka
from tests.system.interop.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """Topics are made when they are first asked for, with three partitions."""
    with running_kafka(config={"num.partitions": 3}) as running:
        yield running
