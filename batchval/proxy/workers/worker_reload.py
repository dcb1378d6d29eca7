"""Other settings for all workers: each prepares, and all apply once every one of them has prepared.

    parent                               worker
    Question(prepare, settings)  ──────▶ builds all that can fail, in a thread
    problems, or connections     ◀────── changes nothing
    Apply(settings)              ──────▶ takes what it has prepared

A worker that starts meanwhile has not prepared: it does both when ``Apply`` comes. One that cannot
apply ends, and the process that replaces it starts with these settings.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from typing import Final, NamedTuple

from batchval.proxy.life.gate import Gate
from batchval.proxy.life.reload import NotPrepared, Step
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.workers.pool import WorkerPool

__all__ = ["PREPARE_S", "PreparedWorkers", "Preparing", "prepared_by"]

#: Seconds for a worker to prepare: a thousand policies take less than one.
PREPARE_S: Final = 30.0

log = logging.getLogger("batchval.proxy")


class Outcome(NamedTuple):
    """The answer of a worker: problems of the settings, or connections that it can serve."""

    problems: list[str]
    connections: int


async def prepared_by(pool: WorkerPool, settings: bytes) -> int | None:
    """Let the workers that serve prepare. Raises ConfigError.

    Return how many connections all workers can serve, those that start as many as the others; None
    where no worker serves.
    """
    serving = {one.key: one.index for one in pool.serving}
    answers = await pool.ask("prepare", PREPARE_S, settings)
    connections = 0
    for key, index in serving.items():
        if key not in answers:
            raise NotPrepared(
                [f"worker {index} did not prepare the settings in {PREPARE_S:g} s, or has ended"]
            )
        outcome: Outcome = pickle.loads(answers[key])
        if outcome.problems:
            raise ConfigError(outcome.problems)
        connections += outcome.connections
    return connections * len(pool.workers) // len(serving) if serving else None


class PreparedWorkers:
    """Settings that the parent and its workers have prepared. ``spread`` lets workers take them."""

    def __init__(self, own: Step, spread: Callable[[], None]) -> None:
        self.max_connections = own.max_connections
        self._own = own
        self._spread = spread

    def apply(self) -> None:
        """Take them here and in all workers."""
        self._own.apply()
        self._spread()


class Preparing:
    """The worker's side: the settings that it has prepared last."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._content = b""
        self._prepared: Step | None = None
        self._turn = asyncio.Lock()

    async def prepare(self, content: bytes) -> Outcome:
        """Prepare pickled settings; return what the parent is to know."""
        async with self._turn:
            settings: Settings = pickle.loads(content)
            try:
                prepared = await self._gate.prepare(settings)
            except ConfigError as error:
                self._prepared = None
                return Outcome(error.problems, 0)
            except Exception as error:  # a defect must not leave the parent without an answer
                log.exception("the settings could not be prepared")
                self._prepared = None
                return Outcome([type(error).__name__], 0)
            self._prepared, self._content = prepared, content
            return Outcome([], prepared.max_connections)

    async def apply(self, content: bytes) -> None:
        """Take settings, which are prepared first if they are not yet. Raises ConfigError."""
        if self._prepared is None or self._content != content:
            outcome = await self.prepare(content)
            if outcome.problems:
                raise ConfigError(outcome.problems)
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.apply()
