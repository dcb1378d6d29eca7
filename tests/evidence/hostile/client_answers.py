"""The targets ``answers_to_…``: answers to the package's own clients, cut, changed and senseless.

    case ──▶ a client, an API, which of its answers are spoiled and how ──▶ what the client did

What must hold: no task, callback or thread is lost; nothing waits where the request's timeout is
over; a spoiled answer ends in an error or in another request, and honest ones after it in success.
Time is simulated (``spoiled_peer``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from batchval.errors import BatchvalError
from batchval.fetch import Consumer, ConsumerOptions
from batchval.network.security import Security
from batchval.producer import Producer, ProducerOptions
from batchval.producer.errors import DeliveryTimeoutError
from batchval.proxy.cluster.discovery import Discovery, DiscoveryOptions
from batchval.proxy.cluster.metadata_client import ask_metadata
from batchval.proxy.produce.policies import ClusterTopics, read_brokers, read_topic_configs
from batchval.proxy.settings.config import Upstream
from tests.evidence.hostile.spoiled_peer import (
    KINDS,
    PARTITIONS,
    TOPIC,
    InlineLoop,
    SpoiledPeer,
    Spoiler,
)

__all__ = [
    "CLIENTS",
    "Case",
    "client_case",
    "cut_cases",
    "largest_answer",
    "run_case",
    "spoiled_answers",
]

_HOST: Final = "127.0.0.1"
_BOOTSTRAP: Final = f"{_HOST}:9091"
REQUEST_S: Final = 1.0
_FOREVER: Final = 1_000_000
_MAX_PASSING: Final = 3
#: Seconds of a client's calls: above what honest answers and three timeouts of requests take.
_CALL_S: Final = 12.0
_RETRY_MS: Final = 50
#: The same where a client has the default of 30 s.
_DEFAULT_S: Final = 40.0
#: Cases between two collections: what is lost in a reference cycle is reported by then.
_COLLECTED_EVERY: Final = 40


#: Spoiled answers until now, by client.
spoiled_answers: Counter[str] = Counter()


class Case(NamedTuple):
    """One run of a client."""

    client: str
    key: int
    kind: str
    first: int
    times: int
    seed: int
    at: int | None = None

    @property
    def passes(self) -> bool:
        """Return whether honest answers follow before any of the client's own limits."""
        return self.times <= _MAX_PASSING


def _security(rng: random.Random) -> Security:
    mechanism = rng.choice(("PLAIN", "SCRAM-SHA-256"))
    return Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, username="u", password="s3cret")


class Outcome:
    """What a client's calls came to."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.succeeded = False

    async def tried(self, call: Awaitable[Any], limit_s: float = _CALL_S) -> Any:
        """Await a call, and keep its error. TimeoutError where it has not ended in time."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(limit_s):
                return await call
        except (BatchvalError, OSError) as error:
            if loop.time() - started >= limit_s:
                raise
            self.errors.append(error)
            return None


def _producer_options(**more: Any) -> ProducerOptions:
    return ProducerOptions(
        bootstrap_servers=[_BOOTSTRAP],
        request_timeout_ms=REQUEST_S * 1000,
        delivery_timeout_ms=_CALL_S * 1000 - 2000,
        max_block_ms=_CALL_S * 1000 - 2000,
        retry_backoff_ms=_RETRY_MS,
        compression_threads=0,
        **more,
    )


async def _sent(producer: Producer, outcome: Outcome) -> None:
    deliveries = []
    for number in range(2 * PARTITIONS):
        call = producer.send(TOPIC, b"v", partition=number % PARTITIONS)
        deliveries.append(await outcome.tried(call))
    for delivery in deliveries:
        if delivery is not None:
            await outcome.tried(_awaited(delivery))


async def _awaited(delivery: Any) -> Any:
    return await delivery


async def _produces(outcome: Outcome, options: ProducerOptions) -> None:
    producer = Producer(options)
    await _sent(producer, outcome)
    outcome.succeeded = not outcome.errors
    await outcome.tried(producer.close(1000))


async def _idempotent(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    await _produces(outcome, _producer_options())


async def _plain(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    await _produces(outcome, _producer_options(enable_idempotence=False, acks=1))


async def _with_sasl(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    security = _security(rng)
    peer.sasl = security.mechanism
    await _produces(outcome, _producer_options(security=security))


async def _transactional(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    producer = Producer(_producer_options(transactional_id="x"))
    await outcome.tried(producer.init_transactions())
    try:
        for _ in range(2):
            if not outcome.errors:
                producer.begin_transaction()
                await _sent(producer, outcome)
            if not outcome.errors:
                await outcome.tried(producer.commit_transaction())
            if outcome.errors:
                await Outcome().tried(producer.abort_transaction())
                break
    except BatchvalError as error:
        outcome.errors.append(error)
    outcome.succeeded = not outcome.errors
    await outcome.tried(producer.close(1000))


def _consumer_options(**more: Any) -> ConsumerOptions:
    return ConsumerOptions(
        bootstrap_servers=[_BOOTSTRAP],
        auto_offset_reset="earliest",
        request_timeout_ms=int(REQUEST_S * 1000),
        default_api_timeout_ms=int(_CALL_S * 1000) - 2000,
        rebalance_timeout_ms=1000,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        retry_backoff_ms=_RETRY_MS,
        # with TLS the consumer asks by itself, without the thread that target ``received`` is for
        security=Security(protocol="SSL", ssl=_TLS),
        **more,
    )


_TLS: Final = ssl.create_default_context()


async def _polled(consumer: Consumer, outcome: Outcome, peer: SpoiledPeer) -> None:
    """Poll until records have come, or the position is beyond them."""
    loop = asyncio.get_running_loop()
    end, found, fetches = loop.time() + _CALL_S, 0, peer.seen[1]
    while not found and loop.time() < end:
        for record in await outcome.tried(consumer.poll(1000)) or ():
            found += record.value is not None
        await asyncio.sleep(0.1)  # an error may be raised by each poll, at once
        if peer.spoiler.seen > peer.spoiler.first + peer.spoiler.times and (
            peer.seen[1] > fetches + 20 or outcome.errors
        ):
            break
    # a member may be assigned nothing
    outcome.succeeded = found > 0 or peer.seen[1] > fetches + 20 or not consumer.assignment()


async def _assigned(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    async with Consumer(_consumer_options(group_id="g")) as consumer:
        await outcome.tried(consumer.offsets_for({(TOPIC, 0): "earliest", (TOPIC, 1): 5}))
        consumer.assign([(TOPIC, n) for n in range(PARTITIONS)])
        await outcome.tried(consumer.committed([(TOPIC, 0)]))
        await _polled(consumer, outcome, peer)
        await outcome.tried(consumer.commit())


async def _member(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    options = _consumer_options(
        group_id="g", enable_auto_commit=rng.random() < 0.5, auto_commit_interval_ms=500
    )
    async with Consumer(options) as consumer:
        consumer.subscribe(TOPIC)
        await _polled(consumer, outcome, peer)
        await asyncio.sleep(3 * REQUEST_S)  # heartbeats
        await outcome.tried(consumer.poll(1000))
        await outcome.tried(consumer.commit())


def _upstream(rng: random.Random, peer: SpoiledPeer) -> Upstream:
    admin: dict[str, str] = {"mechanism": rng.choice(("NONE", "PLAIN", "SCRAM-SHA-256"))}
    peer.sasl = admin["mechanism"]
    if peer.sasl != "NONE":
        admin |= {"username": "u", "password": "s3cret"}
    known = {"bootstrap": _BOOTSTRAP, "admin": admin, "connect_timeout_ms": 2000}
    return Upstream.model_validate(known | {"allow_plaintext": True})


async def _gate_metadata(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    for _ in range(3):
        asked = ask_metadata((_HOST, 9091), "c", None, connect_s=1, answer_s=1)
        outcome.succeeded = await outcome.tried(asked) is not None


async def _gate_admin(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    upstream = _upstream(rng, peer)

    async def read(topics: Any) -> Any:
        return await read_topic_configs(upstream, None, topics)

    topics = ClusterTopics(read, 5.0, retry_s=(0.2, 1.0))
    task = asyncio.get_running_loop().create_task(topics.run())
    for _ in range(3):
        asked = read_brokers(upstream, None, (_HOST, 9091), "c")
        outcome.succeeded = await outcome.tried(asked, _DEFAULT_S) is not None
        topics("new")
        await asyncio.sleep(3)
        if task.done():
            raise AssertionError(f"the policies are read no more: {task.exception()!r}")
    task.cancel()


async def _gate_discovery(outcome: Outcome, peer: SpoiledPeer, rng: random.Random) -> None:
    discovery = Discovery(DiscoveryOptions(((_HOST, 9091),), connect_s=1.0, refresh_s=2.0))
    discovery.subscribe(lambda *_: None)
    await discovery.start()
    for _ in range(20):
        await asyncio.sleep(1)
        outcome.succeeded = discovery.ready and {1, 2} <= discovery.brokers.keys()
        if outcome.succeeded:
            break
    await discovery.stop()
    outcome.errors.append(OSError("it has other brokers"))  # that is its only outcome


Scenario = Callable[[Outcome, SpoiledPeer, random.Random], Awaitable[None]]

#: client -> what it does, and the APIs that it asks.
CLIENTS: Final[dict[str, tuple[Scenario, tuple[int, ...]]]] = {
    "producer": (_idempotent, (0, 3, 18, 22)),
    "producer, acks 1": (_plain, (0, 3, 18)),
    "producer, SASL": (_with_sasl, (17, 36, 18)),
    "producer, transactions": (_transactional, (0, 3, 10, 18, 22, 24, 26)),
    "consumer": (_assigned, (1, 2, 3, 8, 9, 10, 18)),
    "consumer, group": (_member, (1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18)),
    "gate, metadata": (_gate_metadata, (3,)),
    "gate, admin": (_gate_admin, (3, 17, 18, 32, 36)),
    "gate, discovery": (_gate_discovery, (3,)),
}


class _Watch(logging.Handler):
    """Keeps what a lost task, callback or thread leaves."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self.found.append(f"logged: {text}"[:500])

    def handle_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"lost: {context['message']}: {context.get('exception')!r}"[:500])

    def unraisable(self, args: Any) -> None:
        self.found.append(f"unraisable: {args.exc_value!r}")


@contextlib.contextmanager
def _watching() -> Iterator[_Watch]:
    watch, root = _Watch(), logging.getLogger()
    level, before = root.level, (sys.unraisablehook, threading.excepthook)
    others, root.handlers = root.handlers, [watch]
    sys.unraisablehook = threading.excepthook = watch.unraisable
    try:
        yield watch
    finally:
        root.handlers = others
        root.setLevel(level)
        sys.unraisablehook, threading.excepthook = before


def run_case(case: Case) -> tuple[list[str], SpoiledPeer]:
    """Run one case; return what is wrong, and the peer."""
    rng = random.Random(case.seed)
    random.seed(case.seed)  # of backoffs
    loop = InlineLoop()
    spoiler = Spoiler(rng, case.key, case.kind, case.first, case.times, case.at)
    peer = SpoiledPeer(loop, spoiler)
    outcome = peer.outcome = Outcome()
    with _watching() as watch:
        loop.set_exception_handler(watch.handle_loop)
        asyncio.set_event_loop(loop)
        try:
            what = _ran(loop, case, outcome, peer, rng)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
        spoiled_answers[case.client] += spoiler.spoiled
        if case.seed % _COLLECTED_EVERY == 0:
            gc.collect()
    found = [*watch.found, *what, *([peer.problem] if peer.problem else [])]
    return [f"{case}, {spoiler.did:.200}: {one}" for one in found], peer


def _ran(
    loop: InlineLoop, case: Case, outcome: Outcome, peer: SpoiledPeer, rng: random.Random
) -> list[str]:
    scenario, _ = CLIENTS[case.client]
    task = loop.create_task(_limited(scenario(outcome, peer, rng)))
    try:
        loop.run_until_complete(task)
    except TimeoutError:
        return [f"a call has not ended in time: {task.get_stack()}"]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    finally:
        task.cancel()
        for end in peer.ends:
            end.abort()
        left = asyncio.all_tasks(loop)
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.wait_for(asyncio.gather(*left), 1))
    found = [f"a task is left: {one!r}"[:300] for one in left if one is not task]
    if peer.spoiler.spoiled and case.passes:
        if any(isinstance(one, DeliveryTimeoutError) for one in outcome.errors):
            found.append("records waited for the delivery timeout")
        if not outcome.succeeded and not outcome.errors:
            found.append("neither success nor an error")
    return found


async def _limited(work: Awaitable[None]) -> None:
    async with asyncio.timeout(20 * _CALL_S):
        await work
    await asyncio.sleep(0.1)  # what the last callbacks left


def client_case(clients: str, seed: int) -> list[str]:
    """Return what is wrong with the client that gets the answers of this number: one of those whose
    names begin so.
    """
    rng = random.Random(seed)
    client = rng.choice([one for one in CLIENTS if one.startswith(clients)])
    key = rng.choice(CLIENTS[client][1])
    times = rng.choice((1, 1, 2, 3, 30, _FOREVER))
    case = Case(client, key, rng.choice(KINDS), rng.choice((0, 0, 0, 1, 2)), times, seed)
    return run_case(case)[0]


def cut_cases(client: str, key: int) -> Iterator[Case]:
    """Yield a case for each byte at which the first answer to an API can be cut."""
    honest = Case(client, key, "cut", 0, 0, 1)
    for at in range(4, 4 + largest_answer(honest)):
        yield Case(client, key, "cut", 0, 1, at, at)


def largest_answer(case: Case) -> int:
    """Return the bytes of the largest answer to the case's API, without its length."""
    return run_case(case)[1].spoiler.largest
