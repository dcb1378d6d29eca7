"""Kafka's own producer in a JVM of its own, stock or with the producer's agent, at a pace."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.proxy import ends, load
from tests.interop.kafka_broker import classpath, find_java

HEAP = "512m"
#: a pace by which the bytes of a record on the wire become known
FIRST_RECORDS_PER_SECOND = 8000.0


class JavaProducer:
    """One JVM, until the ``with`` block ends. Each run is a line of its input."""

    def __init__(self, agent: Path | None = None) -> None:
        place = ends.BUILD.parent / "broker"
        place.mkdir(parents=True, exist_ok=True)
        text = place / "text"
        text.write_bytes(load.text())
        options = [f"-javaagent:{agent}=carrier=tag"] if agent else []
        #: bytes on the wire of a record, by codec and batch size
        self.record_bytes: dict[tuple[str, int], float] = {}
        self._log = (place / "producers.log").open("ab")
        self._process = subprocess.Popen(
            [
                find_java(),
                *jvm(options),
                str(Path(__file__).with_name("PacedProducer.java")),
                str(text),
                "1000",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.pid = self._process.pid
        if self._line() != "ready":
            self.stop()
            raise RuntimeError(f"the Java producer did not start: see {self._log.name}")

    def __enter__(self) -> JavaProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(
        self,
        bootstrap: str,
        topic: str,
        codec: str,
        partitions: int,
        batch_size: int,
        bytes_per_second: float,
        seconds: float,
    ) -> dict[str, Any]:
        """Send at that pace on the wire; returns records, bytes and seconds.

        The first run of a codec and batch size finds out how many bytes a record has.
        """
        key = (codec, batch_size)
        known = self.record_bytes.get(key)
        pace = bytes_per_second / known if known else FIRST_RECORDS_PER_SECOND
        words = [bootstrap, topic, codec, partitions, batch_size, pace, seconds]
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line() or '{"error": "the JVM ended"}')
        if "error" in found:
            raise RuntimeError(f"the Java producer: {found['error']} (see {self._log.name})")
        self.record_bytes[key] = found["bytes"] / found["records"]
        return found

    def stop(self) -> None:
        """End the JVM."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def jvm(more: Sequence[str]) -> list[str]:
    """Return the JVM's options and class path."""
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", *quiet, *more, "-cp", classpath()]
