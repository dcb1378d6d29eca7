"""Every state of a session with every event, and the way that sessions really go."""

from __future__ import annotations

import itertools
import socket

import pytest

from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.session_states import TRANSITIONS, SessionEvent, SessionState
from batchval.proxy.settings.config import Limits
from tests.support.network import closed_port
from tests.support.proxy import (
    RunningProxy,
    ScriptedBroker,
    eventually,
    limits_with,
    other_frame,
    read_frame,
)


def connected(proxy: RunningProxy) -> socket.socket:
    return socket.create_connection(proxy.address, 10)


def moved(state: SessionState, event: SessionEvent) -> SessionState:
    lifetime = Lifetime(Limits(), 0.0)
    lifetime.state = state
    changed = lifetime.move(event)
    assert changed is (lifetime.state is not state)
    return lifetime.state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SessionState, SessionEvent)))
def test_each_pair_moves_as_the_table_says_or_not_at_all(
    state: SessionState, event: SessionEvent
) -> None:
    assert moved(state, event) is TRANSITIONS.get((state, event), state)


def test_the_table() -> None:
    # Each line of the table is written here once more, as states that follow each other.
    ways = {
        (SessionState.CONNECTING, SessionEvent.CONNECTED): SessionState.AUTHENTICATING,
        (SessionState.AUTHENTICATING, SessionEvent.AUTHENTICATED): SessionState.OPEN,
        (SessionState.DRAINING, SessionEvent.PART): SessionState.PARTING,
        (SessionState.PARTING, SessionEvent.QUIET): SessionState.PARTED,
    }
    for state in (SessionState.CONNECTING, SessionState.AUTHENTICATING, SessionState.OPEN):
        ways[state, SessionEvent.END] = SessionState.DRAINING
    for state in set(SessionState) - {SessionState.CLOSED}:
        ways[state, SessionEvent.CLOSE] = SessionState.CLOSED
    assert ways == TRANSITIONS


def test_no_way_leads_back() -> None:
    assert all(before < after for (before, _), after in TRANSITIONS.items())


@pytest.mark.parametrize("state", SessionState)
def test_a_session_that_ends_has_a_reason_and_a_deadline(state: SessionState) -> None:
    lifetime = Lifetime(limits_with(drain_timeout_ms=3_000), 0.0)
    for event in (SessionEvent.CONNECTED, SessionEvent.AUTHENTICATED):
        if lifetime.state < state:
            lifetime.move(event)
    assert lifetime.end("idle", 7.0, limits_with(drain_timeout_ms=3_000))
    assert lifetime.state >= SessionState.DRAINING
    assert (lifetime.reason, lifetime.deadline) == ("idle", 10.0)
    assert not lifetime.end("fault", 8.0, limits_with(drain_timeout_ms=3_000), SessionEvent.CLOSE)
    assert (lifetime.reason, lifetime.deadline) == ("idle", 10.0)
    assert lifetime.state is SessionState.CLOSED


def test_a_client_parts_once_and_only_if_the_gate_chose_the_end() -> None:
    chosen, faulty = Lifetime(Limits(), 0.0), Lifetime(Limits(), 0.0)
    for lifetime, why in ((chosen, "drain"), (faulty, "frame_size")):
        lifetime.spoke = True
        assert lifetime.part(0.0) is None  # it has not ended
        lifetime.end(why, 0.0, Limits())
    assert faulty.part(0.0) is None
    assert chosen.part(0.0) is not None
    assert chosen.part(0.0) is None
    chosen.came_late()
    assert chosen.look_parting(0.5, 0) is not None
    assert chosen.look_parting(0.75, 4) is not None  # bytes that the client has not acknowledged
    assert chosen.look_parting(1.0, 0) is None
    assert chosen.state is SessionState.PARTED
    assert chosen.may_part


def test_every_state_is_reached_and_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(SessionState) - {SessionState.CONNECTING}
    for state in set(SessionState) - {SessionState.CLOSED}:
        assert (state, SessionEvent.CLOSE) in TRANSITIONS


def test_the_way_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SessionState] = []
    move = Lifetime.move

    def watched(self: Lifetime, event: SessionEvent) -> bool:
        changed = move(self, event)
        if changed:
            seen.append(self.state)
        return changed

    monkeypatch.setattr(Lifetime, "move", watched)
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            assert seen == [SessionState.AUTHENTICATING, SessionState.OPEN]
            sock.shutdown(socket.SHUT_RDWR)
        eventually(lambda: not proxy.proxy.connections)
        assert seen == [
            SessionState.AUTHENTICATING,
            SessionState.OPEN,
            SessionState.DRAINING,
            SessionState.CLOSED,
        ]


def test_a_session_without_a_broker_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningProxy(f"127.0.0.1:{closed_port()}") as proxy, connected(proxy) as sock:
        eventually(lambda: proxy.proxy.connections)
        (session,) = proxy.proxy.connections
        assert session.lifetime.state is SessionState.CONNECTING
        sock.sendall(other_frame(1))
        eventually(lambda: session.lifetime.state is SessionState.CLOSED)
