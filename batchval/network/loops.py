"""Which event loop a program of batchval's runs on. (A library's is its caller's.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's where it is installed (half of asyncio's CPU a request), else asyncio's."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
