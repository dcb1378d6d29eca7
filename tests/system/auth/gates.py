"""A gate from settings, as ``batchval proxy`` makes it, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

import uvloop

from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import settings_from
from tests.support.ports import free_port


class RunningSettings:
    """``with RunningSettings(upstream, topics=…) as gate: … gate.bootstrap …
    gate.gate.counters``
    """

    def __init__(
        self,
        upstream: str,
        *,
        admin: dict[str, Any] | None = None,
        upstream_tls: dict[str, Any] | None = None,
        tls: dict[str, Any] | None = None,
        trusted: bool = False,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
        **more: Any,
    ) -> None:
        listener: dict[str, Any] = {
            "address": f"127.0.0.1:{free_port()}",  # no client of another test knows it
            "first_broker_port": 0,
            "trusted": trusted,
        }
        upstream_settings: dict[str, Any] = {"bootstrap": upstream}
        if tls is not None:
            listener["tls"] = tls
        if admin is not None:
            upstream_settings["admin"] = admin
        if upstream_tls is not None:
            upstream_settings["tls"] = upstream_tls
        settings = {
            "mode": "enforce",
            "listeners": [listener],
            "upstream": upstream_settings,
            "metrics": {"address": None},
        }
        self.settings = settings_from(settings | more)
        self.loop = loop_factory()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.gate: Gate

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def __enter__(self) -> Self:
        self.thread.start()
        self.call(self._start())
        return self

    async def _start(self) -> None:
        self.gate = Gate(self.settings)
        await self.gate.start()

    def __exit__(self, *_: object) -> None:
        self.call(self.gate.stop(0.5))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def call(self, coroutine: Any, timeout: float = 30.0) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    @property
    def address(self) -> tuple[str, int]:
        return self.gate.addresses["default"]

    @property
    def bootstrap(self) -> str:
        return str(self.gate.addresses["default"])
