"""Send batches to one partition over one connection for a while; print the rate as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import statistics
import sys
import time
from typing import Any

from batchval.network.connection import Connection
from batchval.network.options import ConnectionOptions
from tests.support.produce_requests import Metadata, Produce, records


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    settings = ConnectionOptions(
        max_in_flight=options.cap,
        send_buffer_bytes=options.send_buffer,
        request_timeout_ms=60_000,
    )
    connection = await Connection.open(options.host, options.port, settings)
    sock = connection.transport.get_extra_info("socket")
    if (
        options.congestion
    ):  # a namespace's default may be set to few algorithms only, a socket's to any by root
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())
    congestion = (
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    )
    topic = b"pipelining"
    if options.kafka:
        while not await connection.request(Metadata(topic)):
            await asyncio.sleep(0.2)
    payload = records(options.records)
    producer_id = random.getrandbits(40)
    loop = asyncio.get_running_loop()
    answered: list[tuple[float, float]] = []  # (when, latency)
    offsets: list[int] = []
    wrong: list[str] = []
    steady_from = loop.time() + options.warm_up
    until = steady_from + options.seconds
    sequence, size = 0, 0

    while loop.time() < until and not wrong:
        request = Produce(topic, payload, options.records, producer_id, sequence)
        sequence += options.records

        def callback(
            response: Any, error: BaseException | None, began: list[float], sequence: int
        ) -> None:
            if error is not None or response.error_code:
                wrong.append(repr(error or response))
                return
            answered.append((loop.time(), loop.time() - began[0]))
            offsets.append(response.base_offset - sequence)

        began = [0.0]
        size = size or sum(map(len, request.encode(0, None)))
        await connection.produce_async(
            request, lambda r, e, b=began, s=sequence - options.records: callback(r, e, b, s)
        )
        began[0] = loop.time()
    while len(connection.in_flight) and not wrong:
        await asyncio.sleep(0.01)
    connection.close()
    steady = [one for one in answered if steady_from <= one[0] <= until]
    if wrong or not steady or steady[-1][0] == steady[0][0]:  # none, or all at once
        return {"error": wrong[:1] or ["too few answers"]}
    # between answers: the first one's own time lies before them
    seconds = steady[-1][0] - steady[0][0]
    return {
        "requests": len(steady) - 1,
        "seconds": seconds,
        "bytes_per_second": (len(steady) - 1) * size / seconds,
        "records_per_second": (len(steady) - 1) * options.records / seconds,
        "request_bytes": size,
        "congestion": congestion,
        "latency_ms": statistics.median(latency for _, latency in steady) * 1000,
        "peak_in_flight": connection.in_flight.peak,
        "order_kept": len(set(offsets)) == 1,  # the log holds every batch where its sequence says
        "cpu_seconds": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
    }


async def round_trip(options: argparse.Namespace) -> float:
    """Return the link's round trip in milliseconds: the shortest of several connects."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        _, writer = await asyncio.open_connection(options.host, options.port)
        times.append(time.perf_counter() - began)
        writer.close()
    return min(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--cap", type=int, default=5)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=5)
    parser.add_argument("--send-buffer", type=int)
    parser.add_argument("--congestion")
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()
    loop = "asyncio"
    if os.environ.get("BATCHVAL_LOOP") != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            uvloop.install()
            loop = "uvloop"

    async def both() -> dict[str, Any]:
        return {"round_trip_ms": await round_trip(options), "loop": loop, **await measure(options)}

    print(json.dumps(asyncio.run(both())))
    sys.exit(0)


if __name__ == "__main__":
    main()
