"""One real broker for all files here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kafka_broker import KafkaBroker, ToolMissing, classpath


@pytest.fixture(scope="session")
def kafka_jars() -> None:
    """Skips where neither Java nor Maven can give a broker."""
    try:
        classpath()
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Topics are made when they are first asked for, with three partitions."""
    with KafkaBroker(tmp_path_factory.mktemp("broker"), config={"num.partitions": 3}) as running:
        yield running
