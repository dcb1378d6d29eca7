"""A real Apache Kafka 4.4.0 broker (KRaft, broker and controller in one process) for tests, benches
and fixtures.

    with KafkaBroker() as broker:
        ... broker.bootstrap ...

or from a shell, until interrupted:  python -m tests.system.interop.kafka_broker --port 0 --dir DIR

Needs Java 17 or newer, and Maven once: the class path is resolved through kafka/pom.xml and kept in
kafka/target/.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import contextlib
import hashlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Self

from tests.support.class_archives import MAKES, archive_option
from tests.support.ports import free_port
from tests.system.interop.kafka_java import (
    KAFKA_VERSION,
    POM,
    TARGET,
    BrokerError,
    ToolMissing,
    classpath,
    find_java,
    java_command,
    java_version,
)

__all__ = [
    "KAFKA_VERSION",
    "TOOLS_VERSION",
    "BrokerError",
    "KafkaBroker",
    "ToolMissing",
    "brokers",
    "classpath",
    "find_java",
    "is_ready",
    "java_command",
    "java_version",
    "two_brokers",
]

#: The profile `tools` of pom.xml has no version of its own.
TOOLS_VERSION = KAFKA_VERSION
#: The controller refuses a broker that starts again until the session of the killed one has ended;
#: the default is 9 s. A broker that was never killed has the longer session, which a busy machine
#: does not end.
SESSION = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
SESSION_AFTER_KILL = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 250}


def _is_stopped(thread: Path) -> bool:
    """Return whether /proc/PID/task/TID is stopped or has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "tTZX"
    except OSError:
        return True


def class_archive(profile: str, jvm: Sequence[str]) -> list[str]:
    """Return the option of an archive of a broker's classes.

    A broker that starts and stops makes it.
    """
    if any(option.startswith(MAKES) for option in jvm):
        return []

    def fill(option: str) -> None:
        with KafkaBroker(profile=profile, jvm=[option]):
            pass

    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    return archive_option(TARGET / f"{profile}-{digest}", find_java(), fill)


class KafkaBroker:
    """One broker on the loopback, its data in `directory` (a temporary one that is removed, by
    default).

    Data and ports stay through stop, kill and restart. `config` is read at every start, so a
    restart can change it.
    `profile` "3.9" is a broker of that release.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | None = None,
        heap: str = "384m",
        jvm: Sequence[str] = (),
        timeout: float = 90.0,
        profile: str = "broker",
        cluster_id: str | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="batchval-kafka-")).resolve()
        self.data = self.directory / "data"
        self.log = self.directory / "broker.log"
        self._log_start = 0
        self.config = dict(config or {})
        self.heap, self.jvm, self.timeout = heap, tuple(jvm), timeout
        self.profile = profile
        # never a leading dash
        self.cluster_id = (
            cluster_id or base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes)[:22].decode()
        )
        self.port = port or free_port()
        self.controller_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._session = SESSION

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._forget()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._forget()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> Self:
        """Start the broker; return when it has joined its cluster, so that topics can be
        created.
        """
        if self.running:
            raise BrokerError(f"the broker at {self.bootstrap} runs already")
        try:
            self._start()
        except BrokerError:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 60.0) -> None:
        """Shut down cleanly: trim indexes, write producer snapshots, flush checkpoints."""
        if self.process is None:
            return
        process = self.process
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"the broker did not stop within {timeout:g} s and was killed{self._tail()}"
            ) from None
        self._reaped()

    def kill(self) -> None:
        """kill -9: whatever was not written is lost, nothing is trimmed or flushed."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._reaped()
            self._session = SESSION_AFTER_KILL

    def restart(self) -> Self:
        """Restart with the same data and address, after kill() or a clean stop."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Pause with SIGSTOP: connections stay open, and no request is answered."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        threads, until = Path(f"/proc/{self.process.pid}/task"), time.monotonic() + self.timeout
        while not all(
            map(_is_stopped, threads.iterdir())
        ):  # one after the other, and may answer until they are
            if time.monotonic() > until:
                raise TimeoutError("the broker does not stop")
            time.sleep(0.001)

    def resume(self) -> None:
        """Resume, and wait until it has rejoined: a long pause makes the controller fence it."""
        self._signal(signal.SIGCONT)
        self._await_ready(time.monotonic() + self.timeout)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or not self.running:
            raise BrokerError(f"the broker at {self.bootstrap} does not run{self._tail()}")
        self.process.send_signal(number)

    def _start(self) -> None:
        deadline = time.monotonic() + self.timeout
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties().items())
        )
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            if not (self.data / "meta.properties").exists():
                self._format(properties, log)
            jvm = [*class_archive(self.profile, self.jvm), *self.jvm]
            command = java_command(
                "kafka.Kafka", str(properties), heap=self.heap, jvm=jvm, profile=self.profile
            )
            # a session of its own: an interrupt at the terminal is for the tests, which then stop
            # the broker in order
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        atexit.register(self.kill)
        self._await_ready(deadline)

    def _format(self, properties: Path, log: IO[bytes]) -> None:
        """Format the data directory.

        Kafka's StorageTool takes as long as half a broker's start. What it writes depends on the
        release alone, except for the ids in meta.properties. So the first directory of a release
        is kept, and copied for later brokers.
        """
        digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
        kept = TARGET / f"{self.profile}-{digest}.formatted"
        is_plain = not any(
            key.startswith(("unstable.", "log.dir", "metadata.log.dir")) for key in self.config
        )
        if is_plain and kept.is_dir():
            shutil.copytree(kept, self.data, dirs_exist_ok=True)
            directory_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:])[:22].decode()
            ids = f"cluster.id={self.cluster_id}\nnode.id={self.config.get('node.id', 1)}\n"
            (self.data / "meta.properties").write_text(
                f"version=1\n{ids}directory.id={directory_id}\n"
            )
            return
        arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(properties)]
        command = java_command(
            "kafka.tools.StorageTool", *arguments, heap="128m", profile=self.profile
        )
        if subprocess.run(
            command, stdout=log, stderr=log, check=False, timeout=self.timeout
        ).returncode:
            raise BrokerError(f"formatting the storage directory failed{self._tail()}")
        if is_plain:
            fresh = Path(tempfile.mkdtemp(dir=TARGET))
            shutil.copytree(self.data, fresh, dirs_exist_ok=True)
            with contextlib.suppress(OSError):  # another process was first
                fresh.rename(kept)
            shutil.rmtree(fresh, ignore_errors=True)

    def _await_ready(self, deadline: float) -> None:
        while not is_ready(self.host, self.port):
            if self.process is None or self.process.poll() is not None:
                raise BrokerError(f"the broker ended before it was ready{self._tail()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the broker was not ready within {self.timeout:g} s{self._tail()}"
                )
            time.sleep(0.05)

    def _properties(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.host}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data,
            # internal topics for one broker, and none of their waits
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self._session,
            "log.cleaner.dedupe.buffer.size": 4
            << 20,  # its default, 128 MiB, is a third of the heap
            "socket.receive.buffer.bytes": -1,  # the default, 100 KiB, caps every producer on a long path
            "socket.send.buffer.bytes": -1,
            **self.config,
        }

    def _tail(self, lines: int = 15) -> str:
        if not self.log.exists():
            return ""
        log_lines = self.log.read_bytes()[self._log_start :].decode(errors="replace").splitlines()
        return "".join(f"\n    {line}" for line in log_lines[-lines:])

    def _reaped(self) -> None:
        self.process = None
        atexit.unregister(self.kill)

    def _forget(self) -> None:
        self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def brokers(count: int, **options: Any) -> Iterator[list[KafkaBroker]]:
    """Run a cluster of nodes 1 (also the controller) to ``count``."""
    one = KafkaBroker(**options)
    nodes = [one]
    for number in range(2, count + 1):
        more = {
            "process.roles": "broker",
            "node.id": number,
            "controller.quorum.voters": f"1@{one.host}:{one.controller_port}",
        }
        config = {**options.get("config", {}), **more}
        node = KafkaBroker(**options | {"cluster_id": one.cluster_id, "config": config})
        node.config["listeners"] = f"PLAINTEXT://{node.host}:{node.port}"
        nodes.append(node)
    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(KafkaBroker.start, nodes))
        yield nodes
    finally:  # a clean stop of the others would wait for 1, and the data is of no more use
        for broker in reversed(nodes):
            broker._forget()


@contextlib.contextmanager
def two_brokers(**options: Any) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """Run a cluster of nodes 1 (also the controller) and 2."""
    with brokers(2, **options) as (one, two):
        yield one, two


def is_ready(host: str, port: int) -> bool:
    """Return whether it answers Metadata v1 and names itself, as a registered broker does."""
    request = struct.pack(">hhih5si", 3, 1, 7, 5, b"ready", 0)
    try:
        with (
            socket.create_connection((host, port), 2) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = answer.read(12)
            correlation, brokers = struct.unpack(">4xii", head)
            return bool(correlation == 7 and brokers > 0)
    except (OSError, struct.error):  # struct.error: closed before the answer was there
        return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run a Kafka broker until interrupted; its address goes to stdout."
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument(
        "--dir", help="folder of data, configuration and log [default: a temporary one]"
    )
    parser.add_argument("--heap", default="384m")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker setting"
    )
    options = parser.parse_args()
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # a shell starts its background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        settings = dict(setting.split("=", 1) for setting in options.set)
        with KafkaBroker(
            options.dir, port=options.port, heap=options.heap, config=settings
        ) as broker:
            print(broker.bootstrap, flush=True)
            if broker.process is not None:
                broker.process.wait()
            raise BrokerError(f"the broker ended by itself{broker._tail()}")
    except KeyboardInterrupt:
        return 0
    except (BrokerError, ValueError) as error:
        print(f"kafka_broker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
