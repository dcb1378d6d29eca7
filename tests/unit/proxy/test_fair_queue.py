"""Virtual time: who is served next, and what a new name or a new connection brings."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from batchval.proxy.produce.fair_queue import FairQueue, charge
from batchval.proxy.settings.options import ANONYMOUS
from batchval.proxy.watch.senders import (
    FORGET_S,
    HALF_LIFE_S,
    KNOWN_AFTER,
    MAX_DEBT_S,
    DecayingAmount,
    Sender,
    SenderTable,
    Share,
    sender_key,
    virtual_cost_s,
)

#: Bytes that pay for a piece of work of 10 ms.
PAID = 64 << 10


@dataclass(eq=False)
class Session:
    account: Sender
    share: Share = field(default_factory=Share)


@dataclass(eq=False)
class Job:
    client: Session
    name: str = ""
    size: int = PAID
    cancelled: bool = False
    cost_s: float = 0.0
    shares: tuple[Share, Share] | None = None
    costs_s: float = 0.0


class World:
    """A queue with one thread, and a clock that goes on by the work that is done."""

    def __init__(self, **bounds: int) -> None:
        self.now = 1_000.0
        self.senders = SenderTable(clock=lambda: self.now, **bounds)
        self.queue: FairQueue[Job] = FairQueue(self.senders)

    def session(self, key: str) -> Session:
        return Session(self.senders.of_key(key))

    def work(self, cost_s: float) -> Job | None:
        """Do one job, which costs as much unless it says what it costs; return it."""
        job = self.queue.take()
        if job is not None:
            cost_s = job.costs_s or cost_s
            self.now += cost_s
            charge(job, cost_s, self.senders)
        return job

    def serve(self, session: Session, pieces: int, cost_s: float = 0.001) -> None:
        """Do jobs of one session, with nobody else there."""
        for _ in range(pieces):
            self.queue.put(Job(session))
            assert self.work(cost_s) is not None

    def known(self, key: str) -> Session:
        """Return a session that is known, of a sender that is."""
        session = self.session(key)
        self.serve(session, KNOWN_AFTER)
        return session


# ---- who a sender is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "address", "key"),
    [
        ("User:alice", "10.0.0.1", "User:alice"),
        (ANONYMOUS, "10.0.0.1", "10.0.0.1"),
        ("", "10.0.0.1", "10.0.0.1"),
        (ANONYMOUS, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (ANONYMOUS, "2001:db8:1:2::9", "2001:db8:1:2::/64"),
        (ANONYMOUS, "fe80::1%eth0", "fe80::/64"),
        (ANONYMOUS, "::ffff:10.0.0.1", "10.0.0.1"),
        (ANONYMOUS, "::1", "::/64"),
        (ANONYMOUS, "not:an:address", "not:an:address"),
        (ANONYMOUS, "unknown", "unknown"),
    ],
)
def test_a_sender_is_a_principal_or_else_an_address(principal: str, address: str, key: str) -> None:
    assert sender_key(principal, address) == key


# ---- virtual time --------------------------------------------------------------------------------


def test_two_senders_get_as_much_whatever_their_connections() -> None:
    world = World()
    one, many = world.known("one"), [world.known("many") for _ in range(10)]
    done = {"one": 0, "many": 0}
    for session in [one, *many]:
        world.queue.put(Job(session))
    for _ in range(200):
        job = world.work(0.005)
        assert job is not None
        done[job.client.account.key] += 1
        world.queue.put(Job(job.client))
    assert abs(done["one"] - done["many"]) <= 2


def test_the_sessions_of_a_sender_get_as_much_each() -> None:
    world = World()
    sessions = [world.known("one") for _ in range(4)]
    done = {id(session): 0 for session in sessions}
    for session in sessions:
        for _ in range(50):
            world.queue.put(Job(session))
    for _ in range(100):
        job = world.work(0.005)
        assert job is not None
        done[id(job.client)] += 1
    assert max(done.values()) - min(done.values()) <= 2


@pytest.mark.parametrize("of_the_same", [True, False], ids=["one address", "many addresses"])
def test_those_that_are_always_new_are_served_as_one(of_the_same: bool) -> None:
    # each newcomer has one job and never comes back; 20 of them wait at any time
    world = World()
    known = world.known("attacked" if of_the_same else "known")
    names = iter(range(10_000))

    def newcomer() -> Job:
        return Job(world.session("attacked" if of_the_same else f"10.1.0.{next(names)}"))

    for _ in range(20):
        world.queue.put(newcomer())
    waits = []
    for _ in range(50):
        world.queue.put(Job(known))
        waited = 0
        while (job := world.work(0.01)) is not None and job.client is not known:
            waited += 1
            world.queue.put(newcomer())
        waits.append(waited)
    assert max(waits) <= 2
    assert world.queue.count == 20


def test_who_has_no_account_is_not_ahead_of_who_has() -> None:
    world = World()
    known = world.known("known")
    world.queue.put(Job(known, "known"))
    world.queue.put(Job(world.session("new"), "new"))
    world.queue.put(Job(world.session("known"), "new connection"))
    order = [world.work(0.001) for _ in range(3)]
    assert order[0] is not None
    assert order[0].name == "known"


def test_what_its_bytes_do_not_pay_for_counts_more() -> None:
    # 64 long-lived sessions of bombs and one of batches that are worth their bytes, one address
    world = World()
    honest = world.known("one")
    bombs = [world.known("one") for _ in range(64)]
    for session in bombs:
        for _ in range(2):
            world.queue.put(Job(session, size=1_347))
    for _ in range(64):
        world.work(0.07)
    waits = []
    for _ in range(30):
        world.queue.put(Job(honest, costs_s=0.003))
        waited = 0
        while (job := world.work(0.07)) is not None:
            if job.client is honest:
                break
            waited += 1
            world.queue.put(Job(job.client, size=1_347))
        waits.append(waited)
    assert max(waits) <= 1


def test_the_virtual_cost_is_the_cpu_where_the_bytes_pay_for_it() -> None:
    assert virtual_cost_s(0.003, 51_000) == 0.003
    assert virtual_cost_s(0.07, 1_347) > 10 * 0.07
    assert virtual_cost_s(0.0, 0) == 0.0


def test_slices_cost_as_much_as_the_whole() -> None:
    world = World()
    whole, sliced = world.known("whole"), world.known("sliced")
    before = whole.share.start_s, sliced.share.start_s
    world.queue.put(Job(whole, size=0))
    world.work(0.1)
    job = Job(sliced, size=0)
    for _ in range(10):
        world.queue.put(job, first=True)
        world.work(0.01)
    assert whole.share.start_s - before[0] == pytest.approx(
        sliced.share.start_s - before[1], rel=0.05
    )


def test_an_idle_sender_keeps_what_it_owes_and_nothing_else() -> None:
    world = World()
    idle, busy = world.known("idle"), world.known("busy")
    world.serve(busy, 1_000, 0.01)
    world.queue.put(Job(busy))
    world.queue.put(Job(idle))
    assert idle.account.share.start_s >= world.senders.clock_s  # not ten seconds ahead
    while world.work(0.001):
        pass
    world.queue.put(Job(idle, size=0))
    world.work(0.5)
    owed = idle.account.share.start_s - world.senders.clock_s
    assert owed > 1.0
    idle.account.share.join(world.senders.clock_s, world.now)
    assert idle.account.share.start_s == pytest.approx(
        world.senders.clock_s + min(owed, MAX_DEBT_S)
    )
    world.now += 10 * HALF_LIFE_S
    idle.account.share.join(world.senders.clock_s, world.now)
    assert idle.account.share.start_s - world.senders.clock_s < 0.02


def test_debts_are_bounded() -> None:
    world = World()
    one = world.known("one")
    for _ in range(50):
        world.queue.put(Job(one, size=0))
        world.work(1.0)
    one.account.share.join(world.senders.clock_s, world.now)
    assert one.account.share.start_s <= world.senders.clock_s + MAX_DEBT_S


# ---- the queue -----------------------------------------------------------------------------------


def test_jobs_that_were_cancelled_are_dropped_and_hold_no_session() -> None:
    world = World()
    gone, other = world.known("gone"), world.known("other")
    jobs = [Job(gone), Job(gone), Job(other)]
    for job in jobs:
        world.queue.put(job)
    jobs[0].cancelled = jobs[1].cancelled = True
    world.queue.drop(gone)
    assert world.queue.count == 1
    assert gone not in world.queue._jobs
    world.queue.put(Job(gone, "again"))
    assert {job.client.account.key for job in iter(world.queue.take, None)} == {"gone", "other"}
    assert world.queue.take() is None
    assert (world.queue.count, world.queue._order) == (0, [])


def test_every_job_is_taken_once_in_any_order_of_events() -> None:
    rng = random.Random(7)
    world = World(max_known=6, max_new=6)
    sessions = [world.session(f"10.0.0.{n % 9}") for n in range(30)]
    waiting: set[int] = set()
    jobs: dict[int, Job] = {}
    for n in range(20_000):
        what = rng.random()
        if what < 0.45:
            job = Job(rng.choice(sessions), name=str(n), size=rng.randrange(1 << 17))
            world.queue.put(job, first=rng.random() < 0.2)
            waiting.add(id(job))
            jobs[id(job)] = job
        elif what < 0.5 and jobs:
            job = jobs[rng.choice(list(jobs))]
            job.cancelled = True
            if rng.random() < 0.5:
                world.queue.drop(job.client)
            waiting.discard(id(job))
        else:
            taken = world.work(rng.random() / 50)
            if taken is None:
                assert not waiting
            else:
                waiting.remove(id(taken))
                del jobs[id(taken)]
        if rng.random() < 0.01:
            world.now += rng.random() * 2 * FORGET_S
        assert world.queue.count >= len(waiting)
    while (taken := world.work(0.0)) is not None:
        waiting.remove(id(taken))
    assert not waiting
    assert (world.queue.count, world.queue._jobs, world.queue._waiting) == (0, {}, {})


# ---- accounts ------------------------------------------------------------------------------------


def test_accounts_outlive_connections() -> None:
    world = World()
    world.known("one")
    assert world.session("one").account.is_known


def test_accounts_are_bounded_and_a_newcomer_gains_nothing_by_that() -> None:
    world = World(max_known=10, max_new=10)
    for n in range(10):
        world.known(f"known {n}")
    late = world.known("late")
    assert len(world.senders) <= 20
    assert not late.account.is_known  # no place: it is served with the newcomers
    world.now += FORGET_S + 1
    world.serve(late, 1)
    assert late.account.is_known
    assert not world.session("known 0").account.is_known
    for n in range(1_000):
        world.serve(world.session(f"stranger {n}"), 1)
    assert len(world.senders) <= 20
    assert world.session("known 9").account.is_known


def test_a_sender_that_becomes_known_begins_where_the_newcomers_are() -> None:
    world = World()
    world.known("known")
    for n in range(50):
        world.queue.put(Job(world.session(f"bomb {n}"), size=0))
        world.work(0.2)
    late = world.known("late")
    assert late.account.share.start_s >= world.senders.newcomers.start_s


def test_uses_are_halved() -> None:
    uses = DecayingAmount()
    uses.add(8.0, 100.0)
    assert uses.of(100.0) == 8.0
    assert uses.of(100.0 + HALF_LIFE_S) == pytest.approx(4.0)
    assert uses.of(99.0) == 8.0  # a clock that went back


def test_a_sender_has_a_bucket_of_each_kind() -> None:
    world = World()
    one = world.session("one").account.share
    assert [one.may("log_lines", 1.0, 2.0, world.senders.clock) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert one.may("registry_questions", 1.0, 2.0, world.senders.clock)
    world.now += 1.0
    assert one.may("log_lines", 1.0, 2.0, world.senders.clock)
