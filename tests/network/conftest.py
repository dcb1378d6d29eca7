"""Coroutine tests are run on both loops, each within 20 seconds, and must leave nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
import uvloop

from batchval.protocol.frames import poison_released

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(autouse=True)
def loop_kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "asyncio")


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


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Signs certificates for these tests alone."""
    return trustme.CA()


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """A broker's, for localhost and 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="session")
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    """A client's that believes it."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Whoever reads a frame whose memory was given back reads rubbish."""
    before = poison_released(True)
    yield
    poison_released(before)
