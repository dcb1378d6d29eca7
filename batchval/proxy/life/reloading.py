"""Take other settings while the gate runs: on a signal, and when the file has changed.

    asked (SIGHUP) ──────────────────┐
    the file's content is new, ──────┴─▶ read ─▶ checked ─▶ prepared ─▶ applied
    and the same in two looks                └──────┴───────────┴─▶ refused: nothing changes

One reload at a time. A request during a reload starts another one after it. Refused content is
tried again only when it changes, when a reload is requested, or when a worker did not answer.
Symbolic links are followed at each look, so Kubernetes may replace the folder of a ConfigMap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal, Protocol

from batchval.proxy.kit.background_threads import OneAtATime, in_background
from batchval.proxy.life.reload import NotPrepared, Step, changes
from batchval.proxy.life.settings_file import (
    UNREADABLE,
    Checked,
    FileDigests,
    SettingsFile,
    digest_of,
    digests_of,
)
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.watch.metrics import Family, single

__all__ = ["FileWatch", "Reloader", "Target"]

#: Seconds between two looks at the file.
LOOK_S: Final = 1.0
#: Seconds for a reload to read its files, and to prepare: workers have half of it.
LIMIT_S: Final = 60.0
#: Keys that one log line names.
MAX_NAMED_KEYS: Final = 20
#: Lines about faults and warnings that are written in one turn of the loop.
LINES_A_TURN: Final = 10

Result = Literal["applied", "unchanged", "refused"]

log = logging.getLogger("batchval.proxy")


class Target(Protocol):
    """A gate, or several workers."""

    settings: Settings

    async def prepare(self, settings: Settings) -> Step:
        """Build what these settings need. Raises ConfigError; then nothing has changed."""


class FileWatch:
    """A detector of new content of a file. ``tried`` is the content that was tried last."""

    def __init__(self, digest: str) -> None:
        self.tried = self._seen = digest

    def look(self, digest: str) -> bool:
        """Return whether this content is new, and the same as in the look before."""
        is_settled = digest == self._seen
        self._seen = digest
        return is_settled and digest != self.tried


class Reloader:
    """The reloader of one target's settings. ``run`` it as a task; ``ask`` for a reload.

    ``file``    None where all settings are options of the command line: then certificates alone
                can change
    ``files``   what named files held before the target read them
    ``clock``   seconds since 1970
    """

    def __init__(
        self,
        target: Target,
        file: SettingsFile | None,
        files: FileDigests,
        *,
        look_s: float = LOOK_S,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.results: dict[Result, int] = {"applied": 0, "unchanged": 0, "refused": 0}
        self.is_successful = True
        self.applied_s = clock()
        self._target = target
        self._file = file
        self._look_s = look_s
        self._reading = OneAtATime(limit_s)
        self._clock = clock
        self._watch = FileWatch(UNREADABLE if file is None else file.digest)
        self._files = files
        self._asked = asyncio.Event()
        self._is_mode_alone = False  # what the last reload has taken

    def ask(self) -> None:
        """Reload soon, also where the file is the same: certificates may have changed."""
        self._asked.set()

    async def run(self) -> None:
        """Reload when asked or when the file has changed, for ever."""
        while True:
            try:
                await self._take_turn()
            except Exception:  # no thread can be started, for example
                log.exception("the settings file could not be checked for changes")
                await asyncio.sleep(self._look_s)

    async def _take_turn(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), self._look_s)
        if self._asked.is_set():
            self._asked.clear()
            await self.reload()
            if self._is_mode_alone:
                self.ask()  # the other files have not been read yet
        elif self._file is not None and self._target.settings.reload.watch:
            await self._look(self._file)

    async def _look(self, file: SettingsFile) -> None:
        try:
            digest = await self._reading.run(partial(_digest_now, file))
        except TimeoutError:
            digest = UNREADABLE
        if self._watch.look(digest):
            await self.reload()

    async def reload(self) -> Result:
        """Read the settings, and take them if nothing is wrong. Return what came of it."""
        problems: list[str] = []
        self._is_mode_alone = False
        try:
            result = await self._take()
        except ConfigError as error:
            result, problems = "refused", error.problems
            if isinstance(error, NotPrepared):
                self._watch.tried = UNREADABLE
        except TimeoutError:
            result, problems = (
                "refused",
                [f"not read within {self._reading.limit_s:g} s: does a file system hang?"],
            )
            self._watch.tried = UNREADABLE
        except Exception as error:  # a defect must not end the gate, nor later reloads
            log.exception("the settings could not be reloaded")
            result, problems = "refused", [type(error).__name__]
        self.results[result] += 1
        self.is_successful = result != "refused"
        await _log_lines(logging.ERROR, "settings refused", problems)
        if problems:
            log.error("the settings stay as they were: faults in the new ones: %d", len(problems))
        return result

    async def _take(self) -> Result:
        running = self._target.settings
        checked = await self._checked(running)
        found = await in_background(partial(changes, running, checked.settings))
        files = self._files if checked.files is None else checked.files
        found += _replaced(self._files, files)
        if not found:
            log.info("settings and files are unchanged")
            await _log_lines(logging.WARNING, "settings", checked.warnings)
            return "unchanged"
        step = await self._prepared(checked.settings)
        step.apply()
        self._files = files
        self._is_mode_alone = checked.files is None
        self.applied_s = self._clock()
        more = f", and {len(found) - MAX_NAMED_KEYS} more" if len(found) > MAX_NAMED_KEYS else ""
        log.info("settings reloaded: %s%s", ", ".join(found[:MAX_NAMED_KEYS]), more)
        await _log_lines(logging.WARNING, "settings", checked.warnings)
        return "applied"

    async def _prepared(self, settings: Settings) -> Step:
        limit_s = self._reading.limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._target.prepare(settings)
        except TimeoutError:
            raise NotPrepared([f"the settings were not prepared within {limit_s:g} s"]) from None

    async def _checked(self, running: Settings) -> Checked:
        if self._file is None:
            return Checked(running, await self._reading.run(partial(digests_of, running)), [])
        self._watch.tried = UNREADABLE
        data = await self._reading.run(self._file.read)
        self._watch.tried = digest_of(data)
        return await self._reading.run(partial(self._file.check, data, running))

    def families(self) -> Iterator[Family]:
        """Yield the metrics of reloads."""
        results = [((result,), count) for result, count in self.results.items()]
        yield Family(
            "counter", "config_reloads", "Reloads of the settings, by result.", ("result",), results
        )
        text = "1 where the last reload has found no fault."
        yield single("gauge", "config_last_reload_successful", text, float(self.is_successful))
        text = "When the settings in use were taken, in seconds since 1970."
        yield single("gauge", "config_last_applied_timestamp_seconds", text, self.applied_s)


async def _log_lines(level: int, what: str, lines: list[str]) -> None:
    for i, line in enumerate(lines):
        log.log(level, "%s: %s", what, line)
        if i % LINES_A_TURN == LINES_A_TURN - 1:
            await asyncio.sleep(0)


def _digest_now(file: SettingsFile) -> str:
    try:
        return digest_of(file.read())
    except ConfigError:
        return UNREADABLE


def _replaced(before: FileDigests, after: FileDigests) -> list[str]:
    """Return the files that hold something else now, by the keys that name them."""
    return [
        f"{key}: {path} has changed"
        for path, (key, digest) in after.items()
        if digest != before.get(path, ("", digest))[1]
    ]
