"""The event loop of batchval's programs. (Users of the library choose their own.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["loop_factory"]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's factory where it is installed (half the CPU a request), else asyncio's."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
