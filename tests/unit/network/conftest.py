"""Coroutine tests are run on both loops, each within 20 seconds, and must leave no task or socket
open.
"""

from __future__ import annotations

import ssl

import pytest
import trustme

from tests.support import coroutines
from tests.support.coroutines import loop_kind, on_both_loops  # noqa: F401
from tests.support.fixtures import poisoned  # noqa: F401

pytest_generate_tests = on_both_loops


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return coroutines.run(pyfuncitem, 20)


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
