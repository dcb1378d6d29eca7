"""A gate on the running loop whose file of settings a test rewrites, and a client that stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import yaml

from batchval.proxy.life.gate import Gate
from batchval.proxy.life.reloading import Reloader
from batchval.proxy.life.settings_file import SettingsFile, digests_of
from batchval.proxy.settings.loading import drafted_file
from tests.support.proxy import ScriptedBroker, codes


class ReloadedGate:
    """``async with ReloadedGate(folder, broker, mode="observe") as one: await one.reload(…)``

    ``values``  what the file holds
    """

    def __init__(
        self, folder: Path, broker: ScriptedBroker, *, look_s: float = 60.0, **values: Any
    ) -> None:
        self.path = folder / "gate.yaml"
        self.values: dict[str, Any] = {
            "mode": "enforce",
            "listeners": [{"address": "127.0.0.1:0"}],
            "upstream": {"bootstrap": broker.address},
            "metrics": {"address": None},
        } | values
        self.put()
        draft = drafted_file(self.path)
        settings = draft.finished()
        files = digests_of(settings)
        self.gate = Gate(settings)
        self.reloader = Reloader(
            self.gate, SettingsFile(self.path, {}, draft.digest), files, look_s=look_s
        )
        self.gate.metrics.add(self.reloader.families)
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.gate.start()
        self._watching = asyncio.create_task(self.reloader.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await self.gate.stop(0.2)

    def put(self, **values: Any) -> None:
        """Write the file, with other values for these keys."""
        self.values |= values
        self.path.write_text(yaml.safe_dump(self.values))

    async def reload(self, **values: Any) -> str:
        """Write the file and reload."""
        self.put(**values)
        return await self.reloader.reload()

    @contextlib.asynccontextmanager
    async def client(self, name: str = "default") -> AsyncIterator[StayingClient]:
        """Connect to a listener."""
        reader, writer = await asyncio.open_connection(*self.gate.addresses[name])
        try:
            yield StayingClient(reader, writer)
        finally:
            writer.close()


class StayingClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, frame: bytes) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> error code."""
        self.writer.write(frame)
        return codes(await self.answer())

    async def answer(self) -> bytes:
        """Return the next answer."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)
