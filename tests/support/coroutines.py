"""Tests that are coroutines: each on a loop of its own, within a time, and with nothing left that
nobody looked at.

A conftest takes ``on_both_loops`` as its pytest_generate_tests, ``loop_kind``, and calls ``run`` in
its pytest_pyfunc_call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
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


def on_both_loops(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.parametrize("loop_kind", list(LOOPS), indirect=True)


def run(test: pytest.Function, seconds: float, loop: str | None = None) -> bool | None:
    """Run a coroutine test on the loop named, or on its ``loop_kind``; return True if it was
    one.
    """
    function: Any = test.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: test.funcargs[name] for name in inspect.signature(function).parameters}
    unhandled: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(context)
        )
        await asyncio.wait_for(function(**arguments), seconds)

    with asyncio.Runner(loop_factory=LOOPS[loop or test.funcargs["loop_kind"]]) as runner:
        runner.run(main())
    assert unhandled == []
    return True
