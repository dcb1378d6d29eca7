"""Who the client of a session is: what it may send, and under which name."""

from __future__ import annotations

import pytest

from batchval.protocol.frames import FrameError
from batchval.proxy.session.identity import Authenticated, Identity
from batchval.proxy.settings.options import ANONYMOUS
from batchval.proxy.watch.clients import Software
from batchval.proxy.watch.senders import SenderTable
from tests.support.proxy import limits_with
from tests.unit.proxy.test_clients import introduced

LIMITS = limits_with(max_frame_bytes=1 << 20, max_unauthenticated_frame_bytes=1 << 10)


def identity(*, requires: bool | None = True) -> Identity:
    found = Identity(SenderTable(), "edge", requires=requires)
    found.connected("10.0.0.7", 51324)
    found.ready("listener edge", "localhost", "edge")
    return found


@pytest.mark.parametrize(
    ("requires", "authenticated", "is_unknown", "size"),
    [(True, False, False, 1 << 10), (False, True, False, 1 << 20), (None, True, True, 1 << 20)],
)
def test_what_a_client_may_send_follows_from_what_brokers_require(
    requires: bool | None, authenticated: bool, is_unknown: bool, size: int
) -> None:
    for found in (identity(requires=requires), identity(requires=None)):
        found.look(requires=requires)
        assert (found.authenticated, found.is_unknown) == (authenticated, is_unknown)
        assert found.max_frame_bytes(LIMITS) == size


def test_an_authenticated_client_has_the_limits_of_all() -> None:
    found = identity(requires=None)
    assert found.authenticate() == Authenticated(None)
    assert (found.authenticated, found.is_unknown) == (True, False)
    assert found.max_frame_bytes(LIMITS) == 1 << 20


def test_a_principal_is_that_of_the_last_exchange_that_the_broker_has_accepted() -> None:
    found = identity()
    anonymous = found.account
    assert found.principal == ANONYMOUS
    found.authentication_begins("PLAIN")
    assert found.sasl.is_open
    assert found.principal is None  # it may change
    assert found.facts.principal == ANONYMOUS
    assert found.authenticated_as("User:ann") == Authenticated("User:ann")
    assert not found.sasl.is_open
    assert found.principal == found.facts.principal == "User:ann"
    assert found.account is not anonymous


def test_a_mechanism_whose_principal_only_the_broker_knows() -> None:
    found = identity()
    assert found.authenticated_as("") == Authenticated("")
    assert found.principal == ANONYMOUS


def test_a_client_keeps_its_software_where_it_says_nothing_later() -> None:
    found = identity()
    found.introduce(introduced("apache-kafka-java", "4.4.0"), 3)
    found.introduce(introduced("apache-kafka-java", "4.4.0"), 2)
    assert found.software == Software("apache-kafka-java", "4.4.0")
    assert found.facts.software == "apache-kafka-java 4.4.0"


def test_why_a_frame_cannot_be_read() -> None:
    error = FrameError("too long", 2000, 1024, b"", None, [])
    detail = "length 2000, allowed 0 to 1024"
    found = identity()
    assert found.why_not_read(error) == ("frame_unauthenticated", detail)
    found.authenticate()
    assert found.why_not_read(error) == ("frame_size", detail)
    error.peer = "HTTP"
    assert found.why_not_read(error) == ("frame_http", "")
