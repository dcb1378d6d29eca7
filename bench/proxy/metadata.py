"""Time the gate with a Metadata answer (version 12, 28 kB for 600 partitions): new addresses in it.

The gate's own session stands between transports that drop all bytes. A request is put
into the client's buffer, the broker's answer into the broker's, and the call that hands the answer
on is timed: splitter, place in the queue, walk, new addresses, the write. No kernel is in it.
Prints one line of JSON: microseconds, median and best of all calls.

    python -m bench.proxy.metadata [--partitions 600] [--calls 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from batchval.protocol.addresses import addresses
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from batchval.proxy.cluster.listeners import Listener
from batchval.proxy.life.server import Proxy
from batchval.proxy.session.broker_connection import BrokerConnection, ClientConnection
from batchval.proxy.session.session import Session
from batchval.proxy.settings.options import ProxyOptions

METADATA, VERSION = 3, 12
BROKERS, IN_A_TOPIC, REPLICAS = 6, 30, 3
HEAD = 8  # length and correlation id


class Sink(asyncio.Transport):
    """Drops what is written, and keeps the last of it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.last: list[Any] = []

    def write(self, data: Any) -> None:
        self.last = [data]

    def writelines(self, list_of_data: Any) -> None:
        self.last = list_of_data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    def is_closing(self) -> bool:
        return False


class Unconnected(Proxy):
    """Its broker is this script."""

    broker: BrokerConnection

    async def connect(self, listener: Listener, broker: BrokerConnection) -> None:
        broker.connection_made(Sink())
        self.broker = broker


def request() -> bytes:
    return b"".join(MetadataRequest(api_version=VERSION, topics=[]).encode(7, "bench"))


def answer(partitions: int) -> bytes:
    """Return a frame with correlation id 0: six brokers with racks, 30 partitions a topic, 3
    replicas.
    """
    brokers = [
        MetadataResponseBroker(
            node_id=i, host=f"broker-{i}.kafka.svc.cluster.local", port=9092, rack=f"zone-{i % 3}"
        )
        for i in range(BROKERS)
    ]

    def partition(i: int) -> MetadataResponsePartition:
        nodes = [(i + j) % BROKERS for j in range(REPLICAS)]
        return MetadataResponsePartition(
            partition_index=i,
            leader_id=nodes[0],
            leader_epoch=5,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )

    topics = [
        MetadataResponseTopic(
            name=f"topic-{first:06d}",
            topic_id=first.to_bytes(16, "big"),
            partitions=[partition(i) for i in range(min(IN_A_TOPIC, partitions - first))],
        )
        for first in range(0, partitions, IN_A_TOPIC)
    ]
    response = MetadataResponse(brokers=brokers, cluster_id="bench", controller_id=0, topics=topics)
    return b"".join(response.encode(0, VERSION))


def put(into: ClientConnection | BrokerConnection, data: bytes) -> int:
    """Put bytes as a transport does; return the size of the last buffer_updated call."""
    view = memoryview(data)
    while True:
        buffer = memoryview(into.get_buffer(-1)).cast("B")
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        view = view[size:]
        if not view:
            return size
        into.buffer_updated(size)


async def measure(partitions: int, calls: int) -> dict[str, Any]:
    proxy = Unconnected(ProxyOptions(("127.0.0.1", 0), (("broker", 9092),), first_broker_port=0))
    proxy.loop = asyncio.get_running_loop()
    proxy.budget.start(proxy.loop)
    session = Session(proxy, proxy.cluster.open_bootstrap())
    connection, client = session.client, Sink()
    connection.connection_made(client)
    connection.buffer_updated(put(connection, request()))
    while session.broker is None:
        await asyncio.sleep(0)
    asked, frame = request(), bytearray(answer(partitions))
    times = []
    for number in range(1, calls + 101):
        if number > 1:  # the first opened the connection to the broker
            connection.buffer_updated(put(connection, asked))
        frame[4:HEAD] = number.to_bytes(4, "big")
        size = put(proxy.broker, bytes(frame))
        client.last = []
        began = time.perf_counter_ns()
        proxy.broker.buffer_updated(size)
        times.append(time.perf_counter_ns() - began)
        if number in (1, calls):
            check(
                b"".join(client.last),
                bytes(frame),
                {i: at.port for i, at in proxy.cluster.brokers.items()},
            )
        await asyncio.sleep(0)
    proxy.cluster.close()
    warm = times[100:]
    return {
        "us": statistics.median(warm) / 1000,
        "best_us": min(warm) / 1000,
        "answer_bytes": len(frame),
        "partitions": partitions,
        "brokers": BROKERS,
    }


def check(written: bytes, sent: bytes, ports: dict[int, int]) -> None:
    """Check that clients only see the proxy's listeners. Raises RuntimeError if anything else
    differs.
    """
    seen = addresses(written[4:], METADATA, VERSION)
    if seen != [(i, "127.0.0.1", ports.get(i)) for i in range(BROKERS)]:
        raise RuntimeError(f"clients see the addresses {seen}")
    topics = sent.index(b"\6bench")  # the cluster's id follows the brokers
    if not written.endswith(sent[topics:]) or written[4:HEAD] != (7).to_bytes(4, "big"):
        raise RuntimeError("more than addresses has changed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=600)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.partitions, options.calls))))


if __name__ == "__main__":
    main()
