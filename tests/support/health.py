"""A HealthServer on a port of its own, and its pages."""

from __future__ import annotations

import http.client

from batchval.proxy.life.health import HealthServer


async def started(server: HealthServer) -> tuple[str, int]:
    """Listen on any port and accept; return the address."""
    socks = await server.bound("127.0.0.1", 0)
    server.accept(socks)
    host, port = socks[0].getsockname()
    return host, port


def page(address: str, path: str) -> tuple[int, str]:
    """Return the status and the text that a gate's metrics listener answers with."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
