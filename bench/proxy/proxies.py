"""Proxies side by side: CPU a byte and a request, TLS, what claims save, added latency, memory.
Ours and its peers.

All proxies are up at once and take turns cell by cell, round after round, between one client and
one broker (wire.c). Pass the peers, since neither comes from the package index:

    --kroxylicious FOLDER        its jars
    --record-validation FOLDER   jars of Kroxylicious with its RecordValidation, which may be of
                                 another version (kroxylicious/pom.xml gets them)
    --kafka-proxy PROGRAM        grepplabs kafka-proxy

    python -m bench proxy [--rounds 5] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from batchval.core.format import crc32c
from bench import runs
from bench.pages import proxy as page
from bench.proxy import ends, load

TLS_SIZES = ("1 kB", "64 kB")
CROWD_S = 4.0
#: what the page reads of a sample
FIGURES = ("cpu_s_a_gb", "cpu_us_a_request", "mb_a_second", "p50_us", "p99_us", "waited", "error")
CONNECTIONS, WINDOW = 4, 5
UNCOMPARED = ("trust", "audit", "off")
WARM_UP_S = 8.0  # a size, of a JVM


def arguments(argv: list[str] | None) -> argparse.Namespace:
    look = "one short round, few clients: a look, no result"
    parser = runs.parser(__doc__, rounds=5, quick=look, out="proxy/result")
    add = parser.add_argument
    seconds = "Seconds of each cell in each round (default: 0.8)."
    add("--seconds", type=float, default=0.8, help=seconds)
    add("--nice", type=int, default=0, help="Priority of all processes (negative: root).")
    runs.add_codecs(parser, page.CODECS)
    add("--kroxylicious", metavar="FOLDER", help="Folder with the jars of Kroxylicious.")
    jars = "Folder with the jars of Kroxylicious and its RecordValidation."
    add("--record-validation", metavar="FOLDER", help=jars)
    add("--kafka-proxy", metavar="PROGRAM", help="Path of grepplabs kafka-proxy.")
    clients = "Idle clients when memory is measured (default: 1000)."
    add("--clients", type=int, default=1000, help=clients)
    options = runs.parse(parser, argv, needs, ("seconds", "codecs", "clients", "rounds"))
    if options.quick:
        options.rounds, options.seconds, options.clients = 1, 0.1, 20
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    peers = (options.kroxylicious, options.record_validation, options.kafka_proxy)
    words = "--kroxylicious FOLDER, --record-validation FOLDER and --kafka-proxy PROGRAM"
    return "" if all(peers) else words


def version_of_jar(folder: str, name: str) -> str:
    """Return the version in the name of a jar. Raises LookupError where there is none or are two."""
    found = [path.stem for path in Path(folder).glob(f"{name}-[0-9]*.jar")]
    if len(found) != 1:
        raise LookupError(f"{folder} has {len(found)} jars of {name}: allowed is one")
    return found[0].removeprefix(f"{name}-")


def java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return done.stderr.split('"')[1]


def peer_versions(options: argparse.Namespace) -> dict[str, str]:
    """Return the versions of the peers that were named."""
    found = {}
    if options.kroxylicious:
        found["Kroxylicious"] = version_of_jar(options.kroxylicious, "kroxylicious-runtime")
    if options.record_validation:
        name = "kroxylicious-record-validation"
        found["RecordValidation"] = version_of_jar(options.record_validation, name)
    if options.kroxylicious or options.record_validation:
        found["Java"] = java_version()
    if options.kafka_proxy:
        done = subprocess.run(
            [options.kafka_proxy, "version"], capture_output=True, text=True, check=False
        )
        found["kafka-proxy"] = (done.stdout.split() or ["of unknown version"])[-1]
    return found


class Bench:
    """The processes, and what was measured: samples by cell and proxy, one a round."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.places = ends.places(options.nice)
        self.answers = load.answers(ends.BUILD / "answers.bin")
        self.samples: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.missing: dict[str, str] = {}
        self.loads: dict[str, load.Load] = {}
        self.proxies: dict[str, ends.Process] = {}
        self.with_tls: dict[str, ends.Process] = {}  # the same, and a listener for TLS
        self.broker = ends.broker(self.answers, self.places.broker)
        self.highest = 0.0  # requests of 64 kB a second that each proxy can pass

    def start(self) -> None:
        place, port = self.places.proxy, self.broker.port
        for way in ends.GATES:
            self.proxies[way] = ends.gate(way, port, place)
        self.proxies["pump"] = ends.pump(port, place)
        self.proxies |= self.peers(None)
        if jars := self.options.record_validation:
            self.proxies["kroxylicious validating"] = ends.kroxylicious(
                jars, port, place, validating=True
            )
        for name in ("kafka-proxy", "kroxylicious", "kroxylicious validating"):
            if name not in self.proxies:
                self.missing[name] = "not passed"
        self.start_tls()

    def peers(self, tls: ends.Certificate | None) -> dict[str, ends.Process]:
        """Start the proxies of others that were named."""
        place, port, found = self.places.proxy, self.broker.port, {}
        if binary := self.options.kafka_proxy:
            found["kafka-proxy"] = ends.kafka_proxy(binary, port, place, tls=tls)
        if jars := self.options.kroxylicious:
            found["kroxylicious"] = ends.kroxylicious(jars, port, place, validating=False, tls=tls)
        return found

    def start_tls(self) -> None:
        try:
            ends.wire_tls()
        except (OSError, subprocess.CalledProcessError):
            self.missing["TLS"] = "no OpenSSL to build the client with"
            return
        tls = ends.certificate()
        for way in ("validating", "off"):
            self.with_tls[way] = ends.gate(way, self.broker.port, self.places.proxy, tls)
        self.with_tls |= self.peers(tls)

    def stop(self) -> None:
        for process in (*self.proxies.values(), *self.with_tls.values(), self.broker):
            process.stop()

    def loaded(self, size: str, codec: str = "none", *, claims: bool = False) -> load.Load:
        name = f"{size} {codec}{' claims' if claims else ''}"
        if name not in self.loads:
            self.loads[name] = load.make(
                ends.BUILD, size, codec, claims=claims, quick=self.options.quick
            )
        return self.loads[name]

    def measure(
        self,
        cell: str,
        name: str,
        of: load.Load,
        *,
        window: int = WINDOW,
        connections: int = CONNECTIONS,
        tls: bool = False,
    ) -> None:
        """Run once through a proxy, or directly ("direct"); a failure is recorded as a sample."""
        run = partial(
            self.client,
            of=of,
            connections=connections,
            window=window,
            seconds=self.options.seconds,
            tls=tls,
        )
        self.sample(cell, name, run, tls=tls)

    def sample(
        self, cell: str, name: str, run: Callable[[int], dict[str, Any]], *, tls: bool = False
    ) -> None:
        """Run a client against the port of a proxy, and note what that cost."""
        process = (
            self.broker if name == "direct" else (self.with_tls if tls else self.proxies).get(name)
        )
        if process is None:
            return
        before, waited = process.cpu_s(), process.waited_s()
        try:
            sample = run(process.port)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            sample = {"error": str(error)}
        else:
            cpu = process.cpu_s() - before
            sample |= {
                "cpu_s_a_gb": cpu / sample["bytes"] * 1e9,
                "cpu_us_a_request": cpu / sample["requests"] * 1e6,
                "mb_a_second": sample["bytes"] / sample["seconds"] / 1e6,
                "cores": cpu / sample["seconds"],
                "waited": (process.waited_s() - waited) / sample["seconds"],
            }
        self.note(cell, name, sample)

    def note(self, cell: str, name: str, sample: dict[str, Any]) -> None:
        self.samples.setdefault(cell, {}).setdefault(name, []).append(sample)
        text = (
            sample.get("error")
            or f"{sample['cpu_s_a_gb']:.3f} s/GB, {sample['cpu_us_a_request']:.1f} us"
        )
        runs.tell(f"  {cell}: {name}: {text}")

    def validate(self, cell: str, of: load.Load) -> None:
        """Validate in the library what a cell sends through the gate."""
        found = ends.library(of.path, self.places.proxy, self.options.seconds)
        cpu = found["cpu_s"] / found["requests"]
        self.note(
            cell,
            "library",
            {"cpu_s_a_gb": cpu / of.frame_bytes * 1e9, "cpu_us_a_request": cpu * 1e6},
        )

    def offer(self, cell: str, name: str, of: load.Load, rate: float) -> None:
        """Send at a rate, whatever the answers do."""
        run = partial(
            ends.open_loop,
            frames=of.path,
            answers=self.answers,
            place=self.places.client,
            connections=CONNECTIONS,
            rate=rate,
            seconds=self.options.seconds,
        )
        self.sample(cell, name, run)

    def crowd(self, name: str) -> None:
        """Measure many clients that send little, alone and next to some that fill their sockets."""
        quick = self.options.quick
        small, large = self.loaded("1 kB"), self.loaded("64 kB")
        for cell, greedy in (("crowd", 0), ("crowd and greedy", 2 if quick else page.GREEDY)):

            def run(port: int, greedy: int = greedy) -> dict[str, Any]:
                place = self.places.client
                ends_greedy = (
                    ends.greedy(port, large.path, self.answers, place, greedy)
                    if greedy
                    else contextlib.nullcontext()
                )
                with ends_greedy:
                    return ends.open_loop(
                        port,
                        small.path,
                        self.answers,
                        place,
                        connections=20 if quick else page.CROWD,
                        rate=page.CROWD_RATE,
                        seconds=0.2 if quick else CROWD_S,
                    )

            self.sample(cell, name, run)

    def client(
        self,
        port: int,
        of: load.Load,
        connections: int,
        window: int,
        seconds: float,
        *,
        tls: bool = False,
    ) -> dict[str, Any]:
        return ends.client(
            port,
            of.path,
            self.answers,
            self.places.client,
            connections=connections,
            window=window,
            seconds=seconds,
            tls=tls,
        )

    def warm_up(self) -> None:
        """Warm up: JVMs compile, and the audit completes the sender's first 100 batches."""
        for sizes, proxies in ((load.SIZES, self.proxies), (TLS_SIZES, self.with_tls)):
            for size in sizes:
                for name, process in proxies.items():
                    is_jvm = name.startswith("kroxylicious") and not self.options.quick
                    seconds, tls = WARM_UP_S if is_jvm else 0.1, proxies is self.with_tls
                    of = self.loaded(size)
                    self.client(process.port, of, CONNECTIONS, WINDOW, seconds, tls=tls)
        for codec in self.options.codecs[:1]:
            for way in ("trust", "audit"):
                of = self.loaded("64 kB", codec, claims=True)
                self.client(self.proxies[way].port, of, 4, 5, 0.3)

    def find_highest(self) -> None:
        """Measure the highest rate that each proxy passes: the open loop sends shares of it."""
        self.highest = min(
            found["requests"] / found["seconds"]
            for name, process in self.proxies.items()
            if name not in UNCOMPARED
            for found in [self.client(process.port, self.loaded("64 kB"), 4, 5, 1.0)]
        )

    def round(self) -> None:
        for size in load.SIZES:
            for name in self.proxies:
                if name not in ("trust", "audit"):
                    self.measure(f"{size} none", name, self.loaded(size))
        for size in TLS_SIZES:
            for name in self.with_tls:
                self.measure(f"{size} TLS", name, self.loaded(size), tls=True)
        for size in ("64 kB", "1 MB"):
            for codec in self.options.codecs:
                self.measure(f"{size} {codec}", "validating", self.loaded(size, codec))
                self.measure(f"{size} {codec}", "pump", self.loaded(size, codec))
                self.validate(f"{size} {codec}", self.loaded(size, codec))
                for way in ("off", "trust", "audit"):
                    self.measure(f"{size} {codec}", way, self.loaded(size, codec, claims=True))
        for name in ("direct", *self.proxies):
            if name in UNCOMPARED:
                continue
            for size in ("1 kB", "64 kB"):
                self.measure(f"latency {size}", name, self.loaded(size), window=1, connections=1)
            for share in page.SHARES:
                rate = self.highest * share / 100
                self.offer(f"open {share} %", name, self.loaded("64 kB"), rate)
            self.crowd(name)

    def memory(self) -> dict[str, Any]:
        """Measure the memory of separate processes."""
        start = partial(ends.gate, "validating", place=ends.Place())
        small = load.first(self.loaded("1 kB").path)
        large = load.first(self.loaded("64 kB").path)
        clients = self.options.clients
        found: dict[str, Any] = {"idle": {"validating": idle(start, self.answers, small, clients)}}
        if self.options.kafka_proxy:
            peer = partial(ends.kafka_proxy, self.options.kafka_proxy, place=ends.Place())
            found["idle"]["kafka-proxy"] = idle(peer, self.answers, small, clients)
        if self.options.kroxylicious:
            peer = partial(
                ends.kroxylicious, self.options.kroxylicious, place=ends.Place(), validating=False
            )
            found["idle"]["kroxylicious"] = idle(peer, self.answers, small, clients)
        found["stalled_broker"] = stalled_broker(
            start, self.answers, large, clients, 0.5 if self.options.quick else 10
        )
        found["stalled_client"] = stalled_client(
            start, self.answers, 20 if self.options.quick else 954
        )
        return found


# ---- memory: the resident set, which only grows where pages are touched ---------------------------

Start = Callable[[int], ends.Process]


@contextlib.contextmanager
def both(start: Start, answers: Path) -> Iterator[tuple[ends.Process, ends.Process]]:
    """Provide a broker and the proxy before it."""
    broker = ends.broker(answers, ends.Place())
    proxy = start(broker.port)
    try:
        yield broker, proxy
    finally:
        proxy.stop()
        broker.stop()


def connected(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.settimeout(30)
    return sock


def whole(sock: socket.socket, size: int) -> None:
    left = size
    while left:
        data = sock.recv(min(left, 1 << 20))
        if not data:
            raise RuntimeError("the connection ended")
        left -= len(data)


def warn_once(port: int, count: int, frame: bytes) -> list[socket.socket]:
    """Open connections and wait for an answer on each, so that the broker's side is open, too."""
    size = 8 + len(load.produce_answer())
    socks = []
    for _ in range(count):
        sock = connected(port)
        sock.sendall(frame)
        whole(sock, size)
        socks.append(sock)
    return socks


def idle(start: Start, answers: Path, frame: bytes, count: int) -> dict[str, Any]:
    """Measure bytes a connection: ``count`` more than 50 existing ones, after an idle second."""
    with both(start, answers) as (_, proxy):
        socks = warn_once(proxy.port, 50, frame)
        time.sleep(1)
        before = proxy.rss_bytes()
        socks += warn_once(proxy.port, count, frame)
        time.sleep(1)
        after = proxy.rss_bytes()
        for sock in socks:
            sock.close()
        return {
            "connections": count,
            "bytes_a_connection": (after - before) / count,
        }


def stalled_broker(
    start: Start, answers: Path, frame: bytes, clients: int, seconds: float
) -> dict[str, Any]:
    """Send all that is accepted to a stopped broker, resume it, and wait until all is answered."""
    with both(start, answers) as (broker, proxy):
        socks = warn_once(proxy.port, clients, frame)
        before = peak = proxy.rss_bytes()
        os.kill(broker.process.pid, signal.SIGSTOP)
        sent = dict.fromkeys(socks, 0)
        selector = selectors.DefaultSelector()
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_WRITE)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in selector.select(0.2):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                at = sent[sock] % len(frame)
                sent[sock] += sock.send(memoryview(frame)[at:])
            peak = max(peak, proxy.rss_bytes())
        os.kill(broker.process.pid, signal.SIGCONT)
        size = 8 + len(load.produce_answer())
        for sock in socks:
            sock.settimeout(60)
            whole(sock, size * (sent[sock] // len(frame)))
        return {
            "clients": clients,
            "bytes_taken": sum(sent.values()),
            "growth_bytes": peak - before,
        }


def stalled_client(start: Start, answers: Path, fetches: int) -> dict[str, Any]:
    """Request answers of 1 MiB from one client that reads none for a while, and then all."""
    with both(start, answers) as (_, proxy):
        sock = connected(proxy.port)
        sock.sendall(load.fetch())
        whole(sock, 8 + load.FETCH_ANSWER)
        before = peak = proxy.rss_bytes()
        sock.sendall(load.fetch() * fetches)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            time.sleep(0.05)
            peak = max(peak, proxy.rss_bytes())
        left = fetches
        while left:
            whole(sock, 8 + load.FETCH_ANSWER)
            left -= 1
            if left % 16 == 0:
                peak = max(peak, proxy.rss_bytes())
        sock.close()
        return {
            "bytes_queued": fetches * (8 + load.FETCH_ANSWER),
            "growth_bytes": peak - before,
        }


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        versions = peer_versions(options)
    except (LookupError, OSError, subprocess.CalledProcessError) as error:
        runs.tell(str(error))
        return 2
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    (ends.BUILD / "processes.log").write_bytes(b"")
    began = runs.load()
    bench = Bench(options)
    try:
        bench.start()
        bench.warm_up()
        bench.find_highest()
        for number in range(options.rounds):
            runs.tell(f"round {number + 1}")
            bench.round()
    finally:
        bench.stop()
    result = {
        **runs.head(),
        "settings": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "connections": CONNECTIONS,
            "window": WINDOW,
            "load": [began, runs.load()],
            "missing": bench.missing,
            "open_loop_rate": bench.highest,
            "versions": versions,
        },
        "loads": {
            name: {"records": of.records}
            for name, of in bench.loads.items()
            if name.endswith(" claims")
        },
        "memory": bench.memory(),
        "samples": {
            cell: {
                name: [{key: one[key] for key in FIGURES if key in one} for one in taken]
                for name, taken in found.items()
            }
            for cell, found in bench.samples.items()
        },
    }
    result["machine"] |= {"crc32c": crc32c.kernel()}
    runs.finish(options, "proxy", result, page.proxy_body(result), {"whole": bench.samples})
    errors = [
        one
        for cell in bench.samples.values()
        for each in cell.values()
        for one in each
        if "error" in one
    ]
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
