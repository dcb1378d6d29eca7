"""Every state of a session with every event, and the way that sessions really go."""

from __future__ import annotations

import itertools
import socket

import pytest

from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.session_states import TRANSITIONS, Event, State
from batchval.proxy.settings.options import Limits
from tests.support.network import closed_port
from tests.support.proxy import RunningProxy, ScriptedBroker, eventually, other_frame, read_frame


def connected(proxy: RunningProxy) -> socket.socket:
    return socket.create_connection(proxy.address, 10)


def moved(state: State, event: Event) -> State:
    lifetime = Lifetime(Limits(), 0.0)
    lifetime.state = state
    changed = lifetime.move(event)
    assert changed is (lifetime.state is not state)
    return lifetime.state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_each_pair_moves_as_the_table_says_or_not_at_all(state: State, event: Event) -> None:
    assert moved(state, event) is TRANSITIONS.get((state, event), state)


def test_the_table() -> None:
    # Each line of the table is written here once more, as states that follow each other.
    ways = {
        (State.CONNECTING, Event.CONNECTED): State.AUTHENTICATING,
        (State.AUTHENTICATING, Event.AUTHENTICATED): State.OPEN,
        (State.DRAINING, Event.PART): State.PARTING,
        (State.PARTING, Event.QUIET): State.PARTED,
    }
    for state in (State.CONNECTING, State.AUTHENTICATING, State.OPEN):
        ways[state, Event.END] = State.DRAINING
    for state in set(State) - {State.CLOSED}:
        ways[state, Event.CLOSE] = State.CLOSED
    assert ways == TRANSITIONS


def test_no_way_leads_back() -> None:
    assert all(before < after for (before, _), after in TRANSITIONS.items())


@pytest.mark.parametrize("state", State)
def test_a_session_that_ends_has_a_reason_and_a_deadline(state: State) -> None:
    lifetime = Lifetime(Limits(linger_s=3.0), 0.0)
    for event in (Event.CONNECTED, Event.AUTHENTICATED):
        if lifetime.state < state:
            lifetime.move(event)
    assert lifetime.end("idle", 7.0, Limits(linger_s=3.0))
    assert lifetime.state >= State.DRAINING
    assert (lifetime.reason, lifetime.deadline) == ("idle", 10.0)
    assert not lifetime.end("fault", 8.0, Limits(linger_s=3.0), Event.CLOSE)
    assert (lifetime.reason, lifetime.deadline) == ("idle", 10.0)
    assert lifetime.state is State.CLOSED


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
    assert chosen.state is State.PARTED
    assert chosen.may_part


def test_every_state_is_reached_and_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.CONNECTING}
    for state in set(State) - {State.CLOSED}:
        assert (state, Event.CLOSE) in TRANSITIONS


def test_the_way_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[State] = []
    move = Lifetime.move

    def watched(self: Lifetime, event: Event) -> bool:
        changed = move(self, event)
        if changed:
            seen.append(self.state)
        return changed

    monkeypatch.setattr(Lifetime, "move", watched)
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
        assert session.lifetime.state is State.CONNECTING
        sock.sendall(other_frame(1))
        eventually(lambda: session.lifetime.state is State.CLOSED)
