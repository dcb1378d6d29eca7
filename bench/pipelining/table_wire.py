"""Count what a client has under way on the wire: by the correlation ids of Kafka's frames, as
they pass.

A request is in flight from the moment its head (size, API key, version, correlation id) leaves the
client until the last byte of its answer reaches it: an honest client cannot send the next one
before. Only the bytes are read, so a client's own opinion has no part in it; what is encrypted
cannot be counted.

    python -m bench.pipelining.table_wire tun PORT …
        two TUN devices, one in each of two network namespaces; this process holds every packet for
        half the round trip, and follows every TCP payload in its stream's order (Kernels often
        lack sch_netem; TUN they have.)
    python -m bench.pipelining.table_wire relay PORT HOST:PORT
        without root: a delaying relay that listens on PORT

Both print one line of JSON when they are ready, then take lines of JSON: {"rtt": ms}, {"start": 1},
{"report": 1}; the last is answered by one line. They end with their input.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
NEAR, FAR = "10.78.0.1", "10.78.0.2"
SETTINGS = {
    "tcp_wmem": "4096 16384 67108864",  # what a sender of long paths has: the default's 4 MB are a limit at 140 ms
    "tcp_rmem": "4096 131072 67108864",
    "tcp_no_metrics_save": "1",  # a run learns nothing from the one before
}


def names() -> tuple[str, str]:
    """Return the namespaces of this process's link; several links may run on one machine."""
    return f"bvn{os.getpid()}", f"bvf{os.getpid()}"


def is_possible() -> bool:
    """Return whether this machine allows namespaces and TUN devices."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not os.path.exists("/dev/net/tun"):
        return False
    name = f"bvp{os.getpid()}"
    made = (
        subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode
        == 0
    )
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


PRODUCE = 0
REQUEST_HEAD, RESPONSE_HEAD = 12, 8
TCP = 6
SYN = 2


def _device(namespace: str, address: str, mtu: int, congestion: str | None = None) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    device = f"{namespace[:3]}{os.getpid()}"
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN_NO_PI))

    def run(*command: str) -> None:
        subprocess.run(command, check=True)

    inside = ["ip", "netns", "exec", namespace]
    run("ip", "netns", "add", namespace)
    run("ip", "link", "set", device, "netns", namespace)
    run(*inside, "ip", "link", "set", "lo", "up")
    run(*inside, "ip", "addr", "add", f"{address}/24", "dev", device)
    run(*inside, "ip", "link", "set", device, "mtu", str(mtu), "txqueuelen", "20000", "up")
    for key, value in SETTINGS.items():
        run(*inside, "sysctl", "-qw", f"net.ipv4.{key}={value}")
    if congestion:  # by the route: a namespace's own default may be one of few, and only sockets of root know others
        network = f"{address.rpartition('.')[0]}.0/24"
        run(
            *inside,
            "ip",
            "route",
            "replace",
            network,
            "dev",
            device,
            "src",
            address,
            "congctl",
            congestion,
        )
    return descriptor


def ends(mtu: int, congestion: str) -> tuple[int, int]:
    """Make both devices and namespaces; every connection between them uses this congestion
    control.
    """
    near, far = names()
    return _device(near, NEAR, mtu, congestion), _device(far, FAR, mtu, congestion)


class Link:
    """Two TUN devices; every packet waits half a round trip."""

    def __init__(
        self, near: int, far: int, half_s: float, seen: Callable[[bytes, bool], None] | None = None
    ) -> None:
        """Call ``seen`` with each packet at the near end, and True if the packet was sent from
        there.
        """
        self.near, self.far, self.half_s, self.seen = near, far, half_s, seen
        self.over = False

    def carry(self, asked: Mapping[int, Callable[[], None]] | None = None) -> None:
        """Carry packets until ``over`` is set; ``asked`` maps other readable descriptors to
        callbacks.
        """
        asked, seen = asked or {}, self.seen
        queues = {end: collections.deque[tuple[float, bytes]]() for end in (self.near, self.far)}
        other = {self.near: self.far, self.far: self.near}
        while not self.over:
            now = time.monotonic()
            wake = now + 0.2
            for source, queue in queues.items():
                while queue and queue[0][0] <= now:
                    try:
                        os.write(other[source], queue[0][1])
                    except BlockingIOError:
                        break
                    _, packet = queue.popleft()
                    if seen is not None and source == self.far:
                        seen(packet, False)
                if queue:
                    wake = min(wake, queue[0][0])
            readable, _, _ = select.select(
                (*queues, *asked), (), (), max(0.0, wake - time.monotonic())
            )
            due = time.monotonic() + self.half_s
            for source in readable:
                if source in asked:
                    asked[source]()
                    continue
                with contextlib.suppress(BlockingIOError):
                    for _ in range(64):
                        packet = os.read(source, 65536)
                        queues[source].append((due, packet))
                        if seen is not None and source == self.near:
                            seen(packet, True)


class Frames:
    """The frames of one direction, out of its bytes in order; `began` gets a head, `ended` its
    correlation id.
    """

    def __init__(
        self,
        head_size: int,
        began: Callable[[bytes], None] | None,
        ended: Callable[[bytes], None] | None,
    ) -> None:
        self.head_size, self.began, self.ended = head_size, began, ended
        self.head = b""
        self.left = 0

    def feed(self, data: bytes | memoryview) -> None:
        at, end = 0, len(data)
        while at < end:
            if self.left > end - at:
                self.left -= end - at
                return
            if self.left:
                at += self.left
                self.left = 0
                self._done()
                continue
            taken = bytes(data[at : at + self.head_size - len(self.head)])
            self.head += taken
            at += len(taken)
            if len(self.head) == self.head_size:
                if self.began:
                    self.began(self.head)
                self.left = int.from_bytes(self.head[:4], "big") + 4 - self.head_size
                if self.left <= 0:
                    self._done()

    def _done(self) -> None:
        self.left = 0
        if self.ended:
            self.ended(self.head)
        self.head = b""


class Wire:
    """All connections of a run."""

    def __init__(self) -> None:
        self.run = 0
        self.start()

    def start(self) -> None:
        """Forget what was, and what connections of before may still have open."""
        self.run += 1
        self.open_now = 0
        self.answered: list[
            tuple[float, int, float]
        ] = []  # (when, bytes of the request, its latency)
        self.sent: list[tuple[float, int]] = []
        self.highest = self.highest_total = 0
        self.last_byte = 0.0

    def connection(self) -> tuple[Frames, Frames]:
        """Return the two directions of a new connection."""
        under_way: dict[bytes, tuple[float, int]] = {}
        run = self.run

        def asked(head: bytes) -> None:
            size, api_key = struct.unpack_from(">ih", head)
            if api_key != PRODUCE or run != self.run:
                return
            now = time.monotonic()
            under_way[head[8:12]] = now, size + 4
            self.open_now += 1
            self.sent.append((now, size + 4))
            self.highest = max(self.highest, len(under_way))
            self.highest_total = max(self.highest_total, self.open_now)

        def arrived(_: bytes) -> None:
            self.last_byte = time.monotonic()

        def answered(head: bytes) -> None:
            known = under_way.pop(head[4:8], None)
            if known is not None and run == self.run:
                now = time.monotonic()
                self.open_now -= 1
                self.answered.append((now, known[1], now - known[0]))

        return Frames(REQUEST_HEAD, asked, arrived), Frames(RESPONSE_HEAD, None, answered)

    def report(self) -> dict[str, Any]:
        """Report what passed since `start`; `steady`: between the middle answer and the last but
        one.
        """
        sent = sum(size for _, size in self.sent)
        found = {
            "requests": len(self.sent),
            "answers": len(self.answered),
            "bytes": sent,
            "in_flight": self.highest,
            "in_flight_total": self.highest_total,
            "latency_ms": sorted(took for *_, took in self.answered)[len(self.answered) // 2] * 1000
            if self.answered
            else None,
        }
        if self.sent:  # of requests that are not answered this is all there is
            found["sending_s"] = self.last_byte - self.sent[0][0]
        if len(self.answered) >= 8:
            half = len(self.answered) // 2
            steady = self.answered[half:-1]  # the last one is what was left over
            seconds = steady[-1][0] - steady[0][0]
            found["steady_requests"] = len(steady) - 1
            found["steady_bytes_per_s"] = (
                sum(size for _, size, _ in steady[1:]) / seconds if seconds else None
            )
        return found


class Stream:
    """One direction of a TCP connection: its payload in order, whatever is sent again or comes too
    early.
    """

    __slots__ = ("early", "frames", "next")

    def __init__(self, frames: Frames, first: int) -> None:
        self.frames = frames
        self.next = first
        self.early: dict[int, bytes] = {}

    def segment(self, sequence: int, payload: memoryview) -> None:
        ahead = (sequence - self.next) & 0xFFFFFFFF
        if ahead >= 1 << 31:  # sent again, in whole or in part
            seen = (1 << 32) - ahead
            if seen >= len(payload):
                return
            payload, ahead = payload[seen:], 0
        if ahead:
            self.early[sequence] = bytes(payload)
            return
        self.frames.feed(payload)
        self.next = (self.next + len(payload)) & 0xFFFFFFFF
        while self.early:
            for start in list(self.early):
                if (start - self.next) & 0xFFFFFFFF == 0 or (
                    start - self.next
                ) & 0xFFFFFFFF >= 1 << 31:
                    self.segment(start, memoryview(self.early.pop(start)))
                    break
            else:
                return


class Tap:
    """IPv4 packets of both directions; connections to `ports` are followed."""

    def __init__(self, wire: Wire, ports: set[int]) -> None:
        self.wire, self.ports = wire, ports
        self.streams: dict[
            tuple[int, int], Stream
        ] = {}  # (client's port, negative for answers; broker's port)

    def seen(self, packet: bytes, from_client: bool) -> None:
        if packet[9] != TCP:
            return
        at = (packet[0] & 15) * 4
        source, target, sequence = struct.unpack_from(">HHI", packet, at)
        client, server = (source, target) if from_client else (target, source)
        if server not in self.ports:
            return
        if packet[at + 13] & SYN:
            self._opened(from_client, client, server, sequence)
            return
        payload = memoryview(packet)[
            at + (packet[at + 12] >> 4) * 4 : int.from_bytes(packet[2:4], "big")
        ]
        if payload:
            stream = self.streams.get((client if from_client else -client, server))
            if stream is not None:
                stream.segment(sequence, payload)

    def _opened(self, from_client: bool, client: int, server: int, sequence: int) -> None:
        first = (sequence + 1) & 0xFFFFFFFF
        if from_client:
            requests, responses = self.wire.connection()
            self.streams[client, server] = Stream(requests, first)
            self.streams[-client, server] = Stream(responses, 0)
        elif (stream := self.streams.get((-client, server))) is not None:
            stream.next = first


def obey(wire: Wire, set_rtt: Callable[[float], None]) -> bool:
    """Execute one line of commands; return whether more may follow."""
    line = sys.stdin.readline()
    if not line:
        return False
    order = json.loads(line)
    if "rtt" in order:
        set_rtt(order["rtt"] / 2000)
    if "start" in order:
        wire.start()
    print(json.dumps(wire.report() if "report" in order else {}), flush=True)
    return True


def tun(ports: set[int], mtu: int, congestion: str) -> None:
    """Make a TUN link between two new namespaces, and remove them afterwards."""
    near, far = names()
    wire = Wire()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # it is the way, not the load
    try:
        link = Link(*ends(mtu, congestion), 0.0005, Tap(wire, ports).seen)
        print(json.dumps({"near": near, "far": far}), flush=True)

        def set_rtt(half_s: float) -> None:
            link.half_s = half_s

        def order() -> None:
            link.over = not obey(wire, set_rtt)

        link.carry({sys.stdin.fileno(): order})
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class CountingRelay:
    """A delaying relay of streams on one host: windows have no part in it, the count has."""

    def __init__(self, port: int, target: tuple[str, int], wire: Wire) -> None:
        self.port, self.target, self.wire = port, target, wire
        self.half_s = 0.0005

    async def serve(self) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        print(json.dumps({}), flush=True)
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), lambda: obey(self.wire, self._set_rtt) or done.set())
        await done.wait()
        server.close()

    def _set_rtt(self, half_s: float) -> None:
        self.half_s = half_s

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*self.target)
        requests, responses = self.wire.connection()
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                self._counted(reader, to_writer, requests, True),
                self._counted(to_reader, writer, responses, False),
            )

    async def _counted(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        frames: Frames,
        at_once: bool,
    ) -> None:
        """Count requests as they arrive and answers as they are passed on."""
        loop = asyncio.get_running_loop()

        def hand_out(data: bytes) -> None:
            if not at_once:
                frames.feed(data)
            writer.write(data)

        while data := await reader.read(1 << 18):
            if at_once:
                frames.feed(data)
            loop.call_later(self.half_s, hand_out, data)
        loop.call_later(self.half_s, writer.close)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("how", choices=("tun", "relay"))
    parser.add_argument(
        "where", nargs="+", metavar="PORT", help="of brokers; for relay: PORT HOST:PORT"
    )
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument(
        "--congestion", default="cubic", help="of every connection over the link (default cubic)"
    )
    options = parser.parse_args()
    if options.how == "tun":
        tun({int(port) for port in options.where}, options.mtu, options.congestion)
        return
    host, _, port = options.where[1].rpartition(":")
    asyncio.run(CountingRelay(int(options.where[0]), (host, int(port)), Wire()).serve())


if __name__ == "__main__":
    main()
