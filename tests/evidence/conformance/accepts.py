"""Kafka's error codes for very many batches: the oracle's ``accepts`` command, over a pipe.

to the oracle    settings:i32 (size:i32 cfg, as JSON)*, then cases: setting:i16 size:i32 batch
from it          a case: request:i16 analyze:i16 source:i8 validate:i16 resize:i16
"""

from __future__ import annotations

import json
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple

from batchval.core.format.layout import LOG_OVERHEAD, MAGIC
from tests.evidence.conformance import oracle

__all__ = ["OUT_OF_MEMORY", "SKIPPED", "Answered", "Kafka"]

SKIPPED = 10_000
OUT_OF_MEMORY = 10_001
#: Records that claim gigabytes are answered with OUT_OF_MEMORY at once, and are not compared.
HEAP = "-Xmx1g"
_SOURCES = ("none", "gzip", "snappy", "lz4", "zstd")
_ANSWER = struct.Struct(">hhbhh")
_CASE = struct.Struct(">hi")


class Answered(NamedTuple):
    """The error codes of one case, 0 for acceptance; ``source`` is the codec that the batch loop
    found.
    """

    request: int
    analyze: int
    source: str
    validate: int
    resize: int

    def out_of_memory(self) -> bool:
        """Return whether Java's heap ended before Kafka's reading."""
        return OUT_OF_MEMORY in (self.request, self.analyze, self.validate)

    def appended(self, origin: str, batch: bytes) -> int:
        """Return the code with which Kafka's log refuses the batch, 0 if it appends it.

        UnifiedLog.append returns before LogValidator where no whole batch is left. Only a client's
        request passes ProduceRequest.validateRecords, and LogValidator sees only what clients and
        coordinators append (UnifiedLog.appendAsLeader, appendAsFollower).
        """
        stages = [self.request] if origin == "CLIENT" else []
        stages.append(self.analyze)
        if origin in ("CLIENT", "COORDINATOR") and holds_batch(batch):
            stages += [self.validate, self.resize]
        return next((code for code in stages if code), 0)


def holds_batch(data: bytes) -> bool:
    """Return whether the bytes start with a batch that is whole by its size field."""
    return len(data) > MAGIC and LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big") <= len(
        data
    )


class Kafka:
    """An oracle process that answers the cases of a fixed list of configurations."""

    def __init__(self, settings: Sequence[dict[str, Any]]) -> None:
        java, _heap, *rest = oracle.command("accepts")
        self._process = subprocess.Popen(
            [java, HEAP, *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._questions: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        texts = [json.dumps(cfg).encode() for cfg in settings]
        self._questions.put(
            struct.pack(">i", len(texts))
            + b"".join(struct.pack(">i", len(text)) + text for text in texts)
        )

    def _write(self) -> None:
        to = self._process.stdin
        assert to is not None
        try:
            while (data := self._questions.get()) is not None:
                to.write(data)
                to.flush()
            to.close()
        except BrokenPipeError:
            return  # the reader says why

    def ask(self, cases: Sequence[tuple[int, bytes]]) -> None:
        """Send cases: the number of a configuration and a batch each."""
        self._questions.put(
            b"".join(_CASE.pack(setting, len(batch)) + batch for setting, batch in cases)
        )

    def answers(self, count: int) -> Iterator[Answered]:
        """Yield the next ``count`` answers, in the order of the cases. Raises OracleFailed if the
        oracle ends.
        """
        source = self._process.stdout
        assert source is not None
        for _ in range(count):
            data = source.read(_ANSWER.size)
            if len(data) < _ANSWER.size:
                raise oracle.OracleFailed(f"oracle accepts: ended with {self._process.wait()}")
            request, analyze, codec, validate, resize = _ANSWER.unpack(data)
            yield Answered(
                request, analyze, _SOURCES[codec] if codec >= 0 else "", validate, resize
            )

    def __enter__(self) -> Kafka:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._questions.put(None)
        if kind is not None:
            self._process.kill()
        self._writer.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()
