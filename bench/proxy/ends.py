"""The processes of the bench: client and broker (wire.c), the gates, the peers. CPU time and memory
of each.

CPU is that of the whole process, all threads, those that have ended too: its CPU-time clock, in
nanoseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench import runs
from bench.validation import native
from tests.support.ports import free_port

HERE = Path(__file__).resolve().parent
BUILD = runs.BUILD / "proxy"
GATES = ("validating", "off", "trust", "audit")
GREEDY_WINDOW = 64  # requests of 64 kB that a greedy client keeps in flight: 4 MB
KAFKA_PROXY = [
    "server",
    "--http-disable",
    "--default-listener-ip",
    "127.0.0.1",
    "--log-level",
    "error",
]
#: As its authors tune it: buffers that hold a frame, and nobody asks whether a producer wants an
#: answer.
KAFKA_PROXY += ["--proxy-request-buffer-size", "262144", "--proxy-response-buffer-size", "262144"]
KAFKA_PROXY += ["--producer-acks-0-disabled"]
#: Netty without sun.misc.Unsafe, which Java 24 and later take from it, needs three times the CPU.
NETTY = ["-XX:+IgnoreUnrecognizedVMOptions", "--sun-misc-unsafe-memory-access=allow"]
NETTY += ["-Dio.netty.noUnsafe=false", "-Dio.netty.allocator.type=pooled"]
NETTY += ["--enable-native-access=ALL-UNNAMED"]
KROXYLICIOUS = """\
virtualClusters:
- name: bench
  targetCluster: {{bootstrapServers: "127.0.0.1:{broker}"}}
  gateways:
  - name: default
    portIdentifiesNode: {{bootstrapAddress: "127.0.0.1:{port}"}}
"""
KROXYLICIOUS_TLS = """\
    tls: {{key: {{privateKeyFile: "{key}", certificateFile: "{certificate}"}}}}
"""
RECORD_VALIDATION = """\
filterDefinitions:
- name: validation
  type: RecordValidation
  config: {rules: [], defaultRule: {valueRule: {allowNulls: false, allowEmpty: false}}}
defaultFilters: [validation]
"""


@dataclass
class Place:
    """Cores and priority. Without the right to a priority the process goes on without it."""

    cores: tuple[int, ...] = ()
    nice: int = 0

    def take(self) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if self.cores:
            os.sched_setaffinity(0, self.cores)
        if self.nice:
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, self.nice)


@dataclass
class Places:
    """Where proxies run, and where client and broker do."""

    proxy: Place = field(default_factory=Place)
    client: Place = field(default_factory=Place)
    broker: Place = field(default_factory=Place)


def places(nice: int) -> Places:
    """Choose the cores: with four, two for proxies, one each for client and broker; else no
    choice.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 4:
        return Places(Place((), nice), Place((), nice), Place((), nice))
    return Places(
        Place((cores[0], cores[1]), nice), Place((cores[2],), nice), Place((cores[3],), nice)
    )


def wire() -> Path:
    return native.built(BUILD / "wire", [HERE / "wire.c"], "-Wall")


def wire_tls() -> Path:
    """Build the client with OpenSSL. Raises CalledProcessError where its headers are missing."""
    return native.built(
        BUILD / "wire-tls", [HERE / "wire.c"], "-Wall", "-DTLS", after=("-lssl", "-lcrypto")
    )


class Certificate(NamedTuple):
    """Files, PEM; the key as PKCS 8."""

    certificate: Path
    key: Path


def certificate() -> Certificate:
    """Make a certificate for the loopback, and the authority that signs it."""
    leaf = trustme.CA().issue_cert("127.0.0.1", "localhost")
    found = Certificate(BUILD / "broker.pem", BUILD / "broker.key")
    found.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    found.key.write_bytes(pem)
    return found


class Process:
    """One that listens. ``cpu_s`` and ``rss_bytes`` are its own."""

    def __init__(self, command: list[str], place: Place, port: int | None = None) -> None:
        self.log = (BUILD / "processes.log").open("ab")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if port is None else self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
            preexec_fn=place.take,  # noqa: PLW1509 - no thread is here
            cwd=runs.ROOT,
        )
        self.port = self._read_port(command) if port is None else port
        self._wait()

    def _read_port(self, command: list[str]) -> int:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if words[:1] != [b"listening"]:
            raise RuntimeError(f"{command[:2]} did not start: see {self.log.name}")
        return int(words[1])

    def _wait(self) -> None:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise RuntimeError(f"nothing listens at {self.port}: see {self.log.name}")

    def cpu_s(self) -> float:
        return runs.cpu_s(self.process.pid)

    def waited_s(self) -> float:
        """Return how long its live threads waited for a core (schedstat); 0 where it is unknown."""
        total = 0
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # a thread may end meanwhile
                total += int(path.read_text().split()[1])
        return total / 1e9

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def broker(answers: Path, place: Place) -> Process:
    return Process([str(wire()), "broker", str(answers)], place)


def pump(broker_port: int, place: Place) -> Process:
    return Process(
        [str(native.built(BUILD / "pump", [HERE / "pump.c"], "-Wall")), str(broker_port)], place
    )


def gate(way: str, broker_port: int, place: Place, tls: Certificate | None = None) -> Process:
    """Start a gate that works in this way."""
    return Process(runs.program("proxy.gate", broker_port, way, *(tls or ())), place)


def kafka_proxy(
    binary: str, broker_port: int, place: Place, *, tls: Certificate | None = None
) -> Process:
    """Start grepplabs kafka-proxy."""
    port = free_port()
    mapping = f"127.0.0.1:{broker_port},127.0.0.1:{port}"
    command = [binary, *KAFKA_PROXY, "--bootstrap-server-mapping", mapping]
    if tls is not None:
        command += ["--proxy-listener-tls-enable", "--proxy-listener-cert-file"]
        command += [str(tls.certificate), "--proxy-listener-key-file", str(tls.key)]
    return Process(command, place, port)


def kroxylicious(
    jars: str, broker_port: int, place: Place, *, validating: bool, tls: Certificate | None = None
) -> Process:
    port = free_port()
    config = BUILD / f"kroxylicious-{port}.yaml"
    text = KROXYLICIOUS.format(broker=broker_port, port=port)
    if tls is not None:
        text += KROXYLICIOUS_TLS.format(key=tls.key, certificate=tls.certificate)
    config.write_text(text + (RECORD_VALIDATION if validating else ""))
    java = shutil.which("java") or "java"
    start = [str(HERE / "kroxylicious" / "Start.java"), str(config)]
    command = [java, "-Xms512m", "-Xmx512m", *NETTY, "-cp", f"{jars}/*", *start]
    return Process(command, place, port)


def client(
    port: int,
    frames: Path,
    answers: Path,
    place: Place,
    *,
    connections: int,
    window: int,
    seconds: float,
    tls: bool = False,
) -> dict[str, Any]:
    """Run the client once. Raises RuntimeError with its output if an answer is not the broker's."""
    program = [str(wire_tls()), "client-tls"] if tls else [str(wire()), "client"]
    words = (port, frames, answers, connections, window, seconds)
    return _answered([*program, *map(str, words)], place, seconds)


def open_loop(
    port: int,
    frames: Path,
    answers: Path,
    place: Place,
    *,
    connections: int,
    rate: float,
    seconds: float,
) -> dict[str, Any]:
    """Send ``rate`` requests a second, whatever the answers do. Raises as ``client`` does."""
    words = (port, frames, answers, connections, f"{rate:.3f}", seconds)
    return _answered([str(wire()), "open", *map(str, words)], place, seconds)


def library(frames: Path, place: Place, seconds: float) -> dict[str, Any]:
    """Validate the batches of a file by the library alone."""
    return _answered(runs.program("proxy.library", frames, seconds), place, seconds)


@contextlib.contextmanager
def greedy(
    port: int, frames: Path, answers: Path, place: Place, connections: int
) -> Iterator[None]:
    """Keep the sockets of so many clients full."""
    words = (port, frames, answers, connections, GREEDY_WINDOW, 3600)
    with subprocess.Popen(
        [str(wire()), "client", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=place.take,  # noqa: PLW1509 - no thread is here
    ) as process:
        try:
            yield
        finally:
            process.kill()


def _answered(command: list[str], place: Place, seconds: float) -> dict[str, Any]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=place.take,
        cwd=runs.ROOT,
        timeout=seconds + 60,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
