"""A HealthServer on a port of its own."""

from __future__ import annotations

from batchval.proxy.life.health import HealthServer


async def started(server: HealthServer) -> tuple[str, int]:
    """Listen on any port and accept; return the address."""
    socks = await server.bound("127.0.0.1", 0)
    server.accept(socks)
    host, port = socks[0].getsockname()
    return host, port
