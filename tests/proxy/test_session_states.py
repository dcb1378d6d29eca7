"""Every state of a session with every event, and the way that sessions really go."""

from __future__ import annotations

import itertools
import socket

import pytest

from batchval.proxy.session.session import Session
from batchval.proxy.session.session_states import TRANSITIONS, Event, State
from tests.support.network import closed_port
from tests.support.proxy import RunningProxy, ScriptedBroker, eventually, other_frame, read_frame


def connected(proxy: RunningProxy) -> socket.socket:
    return socket.create_connection(proxy.address, 10)


def moved(state: State, event: Event) -> State:
    session = object.__new__(Session)
    session.state = state
    changed = session.move(event)
    assert changed is (session.state is not state)
    return session.state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_each_pair_moves_as_the_table_says_or_not_at_all(state: State, event: Event) -> None:
    assert moved(state, event) is TRANSITIONS.get((state, event), state)


def test_the_table() -> None:
    # Each line of the table is written here once more, as states that follow each other.
    ways = {
        (State.CONNECTING, Event.CONNECTED): State.AUTHENTICATING,
        (State.AUTHENTICATING, Event.AUTHENTICATED): State.OPEN,
    }
    for state in (State.CONNECTING, State.AUTHENTICATING, State.OPEN):
        ways[state, Event.END] = State.DRAINING
    for state in (State.CONNECTING, State.AUTHENTICATING, State.OPEN, State.DRAINING):
        ways[state, Event.CLOSE] = State.CLOSED
    assert ways == TRANSITIONS


def test_no_way_leads_back() -> None:
    assert all(before < after for (before, _), after in TRANSITIONS.items())


def test_every_state_is_reached_and_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.CONNECTING}
    for state in set(State) - {State.CLOSED}:
        assert (state, Event.CLOSE) in TRANSITIONS


def test_the_way_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[State] = []
    move = Session.move

    def watched(self: Session, event: Event) -> bool:
        changed = move(self, event)
        if changed:
            seen.append(self.state)
        return changed

    monkeypatch.setattr(Session, "move", watched)
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            assert seen == [State.AUTHENTICATING, State.OPEN]
            sock.shutdown(socket.SHUT_RDWR)
        eventually(lambda: not proxy.proxy.connections)
        assert seen == [State.AUTHENTICATING, State.OPEN, State.DRAINING, State.CLOSED]


def test_a_session_without_a_broker_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningProxy(f"127.0.0.1:{closed_port()}") as proxy, connected(proxy) as sock:
        eventually(lambda: proxy.proxy.connections)
        (session,) = proxy.proxy.connections
        assert session.state is State.CONNECTING
        sock.sendall(other_frame(1))
        eventually(lambda: session.state is State.CLOSED)
