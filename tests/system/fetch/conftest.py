"""Coroutine tests run on uvloop and have a minute and a half each; one broker serves all of these
files.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import coroutines
from tests.support.fixtures import running_kafka
from tests.system.interop.kafka_broker import KafkaBroker


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return coroutines.run(pyfuncitem, 90, "uvloop")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """Sessions may be short: members are killed here."""
    with running_kafka(config={"group.min.session.timeout.ms": 1000}) as broker:
        yield broker
