"""A link with a long round trip between two network namespaces, with the kernel's TCP at both ends.

Two TUN devices, one in each namespace; a process holds every packet for half the round trip.
(Kernels often lack sch_netem; TUN they have.) Needs root and /dev/net/tun. ``Relay`` is for
everyone else: it delays chunks of a stream, so windows and congestion control have no part in it.

    python -m bench.pipelining.link 140       prints "ready", and runs until it is ended
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from bench import runs

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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --link and --congestion."""
    default = "tun" if is_possible() else "relay"
    add = parser.add_argument
    link = "TUN devices between network namespaces (root), or a relay (default: tun if possible)."
    add("--link", choices=("tun", "relay"), default=default, help=link)
    congestion = "Congestion control of every connection over the link (default: cubic)."
    add("--congestion", default="cubic", help=congestion)


def needs(link: str) -> str:
    """Return what a run over this link lacks that is to be saved."""
    return "TUN devices in network namespaces (root)" if link == "relay" else ""


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


@contextlib.contextmanager
def link(rtt_ms: float) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the command prefixes that run a program at the near end and at the far end."""
    command = runs.program("pipelining.link", rtt_ms)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:1] != ["ready"]:
            raise RuntimeError("the link could not be made")
        yield ["ip", "netns", "exec", words[1]], ["ip", "netns", "exec", words[2]]
    finally:
        process.terminate()
        process.wait()


class Relay:
    """A stand-in for the link on one host: what comes in at ``port`` goes on to a target, half a
    round trip later.
    """

    def __init__(self, target: tuple[str, int], rtt_ms: float) -> None:
        self.target = target
        self.half_s = rtt_ms / 2000

    async def serve(self) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        print(f"listening 127.0.0.1 {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*self.target)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._carry(reader, to_writer), self._carry(to_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 18):
            loop.call_later(self.half_s, writer.write, data)
        loop.call_later(self.half_s, writer.close)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rtt", type=float, help="milliseconds")
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument(
        "--relay", metavar="HOST:PORT", help="without namespaces: a delaying relay to this address"
    )
    options = parser.parse_args()
    if options.relay:
        host, _, port = options.relay.rpartition(":")
        asyncio.run(Relay((host, int(port)), options.rtt).serve())
    near, far = names()
    try:
        path = Link(
            _device(near, NEAR, options.mtu), _device(far, FAR, options.mtu), options.rtt / 2000
        )

        def ended(*_: object) -> None:
            path.over = True

        signal.signal(signal.SIGTERM, ended)
        signal.signal(signal.SIGINT, ended)
        print("ready", near, far, flush=True)
        path.carry()
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
