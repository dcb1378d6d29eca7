"""A neighbouring machine: a network namespace at the end of a cable (a veth pair) that can be
pulled.

with neighbour() as there:       # None where namespaces may not be made
    there.listen()               # a listening socket over there
    there.connect(address)       # a connection from over there
    there.command("python", …)   # a command line that runs over there
    there.pull()                 # no packet arrives any more, and no side is notified

Over there nothing is known but the two ends of the cable and a loopback of its own: what listens on
this machine's loopback is out of reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

CLONE_NEWNET = 0x40000000
T = TypeVar("T")
_numbers = itertools.count()


class Neighbour:
    """``here`` and ``there`` are the addresses of the two ends."""

    def __init__(self) -> None:
        number = (os.getpid() * 16 + next(_numbers)) % 16_384
        self.name = f"bv{number}"
        self.device, self.far = f"bva{number}", f"bvb{number}"
        net = f"10.{192 + number // 4096}.{number // 16 % 256}"
        self.here, self.there = (f"{net}.{number % 16 * 4 + i}" for i in (1, 2))

    def make(self) -> bool:
        """Make the namespace; return whether that was possible."""
        ip = shutil.which("ip")
        if ip is None:
            return False
        inside = ("-n", self.name)
        for words in (
            ("netns", "add", self.name),
            (
                "link",
                "add",
                self.device,
                "type",
                "veth",
                "peer",
                "name",
                self.far,
                "netns",
                self.name,
            ),
            ("addr", "add", f"{self.here}/30", "dev", self.device),
            ("link", "set", self.device, "up"),
            (*inside, "addr", "add", f"{self.there}/30", "dev", self.far),
            (*inside, "link", "set", self.far, "up"),
            (*inside, "link", "set", "lo", "up"),
        ):
            if subprocess.run([ip, *words], capture_output=True, check=False).returncode:
                return False
        return True

    def remove(self) -> None:
        for words in (("link", "del", self.device), ("netns", "del", self.name)):
            with contextlib.suppress(OSError):
                subprocess.run(["ip", *words], capture_output=True, check=False)

    def pull(self) -> None:
        """Take the far end down: packets to it are dropped, and none come back."""
        subprocess.run(["ip", "-n", self.name, "link", "set", self.far, "down"], check=True)

    def inside(self, make: Callable[[], T]) -> T:
        """Run a function in a thread in the namespace: a socket belongs to the one it was made
        in.
        """
        made: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                with open(f"/run/netns/{self.name}") as namespace:
                    if libc.setns(namespace.fileno(), CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]

    def listen(self) -> socket.socket:
        return self.inside(lambda: socket.create_server((self.there, 0)))

    def connect(self, address: tuple[str, int], timeout: float = 10.0) -> socket.socket:
        return self.inside(lambda: socket.create_connection(address, timeout))

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour | None]:
    """Yield a neighbour, or None where this machine does not allow one."""
    made = Neighbour()
    try:
        yield made if made.make() else None
    finally:
        made.remove()
