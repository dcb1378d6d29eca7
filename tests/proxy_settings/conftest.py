"""Coroutine tests are run on both loops, each within 20 seconds, and must leave nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(autouse=True)
def loop_kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "asyncio")


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    log = logging.getLogger("batchval")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], level, log.propagate = before
    log.setLevel(level)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.parametrize("loop_kind", list(LOOPS), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function: Any = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    unhandled: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        await asyncio.wait_for(function(**arguments), 20)

    with asyncio.Runner(loop_factory=LOOPS[pyfuncitem.funcargs["loop_kind"]]) as runner:
        runner.run(main())
    assert unhandled == []
    return True
