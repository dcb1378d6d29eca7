"""Fixtures of the gate's tests with a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import running_kafka
from tests.system.interop.kafka_broker import KafkaBroker
from tests.unit.proxy.conftest import loop_kind, poisoned, pytest_generate_tests, pytest_pyfunc_call

__all__ = ["broker", "loop_kind", "poisoned", "pytest_generate_tests", "pytest_pyfunc_call"]


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka() as running:
        yield running
