"""The durations of one session against a dictionary of the requests under way."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any, Final

from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.session.fast_path import FastPath, Routes
from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.request_latency import Traffic, clock_ns, histograms_of
from tests.support.proxy import proxy_options

__all__ = ["durations_case"]

_GATE: Final = ProduceValidator(proxy_options(), Counters())
_KEYS: Final = (0, 1, 3, 18, 127)
_LAST_ID: Final = 0x7FFFFFFF
_MAX_MEASURED_REQUESTS: Final = 2048  # requests of a session that are measured at a time


class _Model:
    """What must have been counted, by API key."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.brokers: Counter[int] = Counter()
        self.waiting = 0
        self.client = 0

    def differs(self, traffic: Traffic) -> list[str]:
        """Return what is wrong."""
        taken = traffic.taken()
        for key in _KEYS:
            counts = [0, 0]
            if key in taken:
                counts = [sum(found) for found, _ in histograms_of(taken[key])]
            if counts != [self.requests[key], self.brokers[key]]:
                return [
                    f"API {key}: {counts} were counted, not {self.requests[key]} and {self.brokers[key]}"
                ]
        unmeasured = traffic.unmeasured_waiting, traffic.unmeasured_client
        return (
            [] if unmeasured == (self.waiting, self.client) else [f"{unmeasured} were not measured"]
        )


def durations_case(seed: int) -> list[str]:
    """Return what is wrong with the requests that follow from this number."""
    rng = random.Random(seed)
    traffic, model = Traffic(), _Model()
    answers: deque[Any] = deque()
    path = FastPath(Routes({}), _GATE, _GATE.counters, answers, {}, traffic)
    path.sent = path.received = rng.choice(
        [0, _LAST_ID - rng.randrange(40), rng.randrange(_LAST_ID)]
    )
    # the broker may not be measured any more; None: nothing is
    under_way: deque[tuple[int, bool | None]] = deque()
    measured = 0
    for _ in range(rng.randrange(1, 60)):
        draw = rng.random()
        if draw < 0.5:
            for _ in range(rng.choice([1, 3, 30, rng.randrange(3 * _MAX_MEASURED_REQUESTS)])):
                key = rng.choice(_KEYS)
                own = rng.random() < 0.1
                path.send(key, 0 if own else clock_ns())
                fits = not own and _is_free(under_way)
                model.waiting += not fits and not own
                measured += fits
                under_way.append((key, True if fits else None))
        elif draw < 0.9:
            for _ in range(min(len(under_way), rng.choice([1, 5, 2 * _MAX_MEASURED_REQUESTS]))):
                key, broker = under_way.popleft()
                path.receive((path.received + 1) & _LAST_ID, 100)
                answered = rng.random() < 0.9
                path.finish(answered)
                measured -= broker is not None
                model.brokers[key] += bool(broker)
                model.requests[key] += broker is not None and answered
        else:
            whole = rng.random() < 0.5
            path.forget(whole)
            model.client += measured if whole else 0
            measured = 0 if whole else measured
            under_way = deque(
                (key, None if whole or one is None else False) for key, one in under_way
            )
        if found := model.differs(traffic):
            return found
    return []


def _is_free(under_way: deque[tuple[int, bool | None]]) -> bool:
    """Return whether the place of the next request is free: none that is measured is under way
    whose number differs from its own by a multiple of _MAX_MEASURED_REQUESTS.
    """
    return all(
        under_way[-n][1] is None
        for n in range(_MAX_MEASURED_REQUESTS, len(under_way) + 1, _MAX_MEASURED_REQUESTS)
    )
