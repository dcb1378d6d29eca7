"""Coroutine tests run on uvloop and have a minute each; one broker serves all of these files."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from interop.kafka_broker import KafkaBroker, ToolMissing


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function: Any = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    unhandled: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        await asyncio.wait_for(function(**arguments), 90)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert unhandled == []
    return True


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """Sessions may be short: members are killed here."""
    broker = KafkaBroker(config={"group.min.session.timeout.ms": 1000})
    try:
        broker.start()
    except ToolMissing as error:
        pytest.skip(str(error))
    try:
        yield broker
    finally:
        broker.stop()
        broker._forget()
