"""Produce requests of recorded batches for a real broker, and a paced client that sends them.

    FRAMES   Produce requests (version 9, acks=1) of one topic: one batch for each partition
    ANSWER   the body of the only response that is accepted
    MASK     1 where a bit of the response must be equal: all but the offsets that a broker assigns

The batches are those of bench/proxy/load.py: records of 1 kB, as many as the frame's size takes.
The client is ``wire paced`` (bench/proxy/wire.c). It counts requests by their responses, so that
the number of batches is exact.
"""

from __future__ import annotations

import json
import struct
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from batchval.core import claims
from bench.proxy import ends, load
from bench.validation import batches

Carrier = Literal["none", "tag", "payload"]
FRAMES = 16
WINDOW = 5
#: of one batch and its part of a request, without its records
OVERHEAD = 100
SIZES = {16: 16_000, 64: 64_000}  # kB
ANSWER_TIMEOUT_S = 60.0


class How(NamedTuple):
    """How requests are sent: connections in all, TLS, and the cores of the client."""

    connections: int = 1
    tls: bool = False
    place: ends.Place = ends.Place()


ONE_CONNECTION = How()


@cache
def records_in(codec: str, kilobytes: int) -> int:
    """Return how many records a batch holds whose frame is as long as its size allows."""
    count, limit = kilobytes, SIZES[kilobytes]
    for _ in range(4):
        length = len(batches.batch_of(codec, load.values(0, count)))
        count = max(1, int(count * (limit - OVERHEAD) / length))
    return count


@cache
def recorded(codec: str, kilobytes: int, number: int) -> bytes:
    """Return a batch: each number has records of its own."""
    content = load.values(number, records_in(codec, kilobytes))
    return bytes(batches.batch_of(codec, content))


def partition_data(partition: int, batch: bytes, carrier: Carrier) -> bytes:
    """Return PartitionProduceData with the batch's claims in this carrier."""
    if carrier == "payload":
        batch = claims.attach(batch, carrier="payload")
    tags = load.tagged(batch) if carrier == "tag" else b"\0"
    return load.partition_data(partition, batch, tags)


def answer(topic: str, partitions: int) -> tuple[bytes, bytes]:
    """Return the response without an error, after its correlation id, and its mask.

    base_offset, log_append_time_ms and log_start_offset are the broker's, and so is the throttle
    time. The error code, record_errors and error_message are not.
    """
    part = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\1" + b"\0" + b"\0"
    free = bytes(4) + b"\xff" * 2 + bytes(24) + b"\xff" * 3  # indexes come in any order
    head = b"\0" + b"\2" + load.compact(topic.encode()) + batches.uvarint(partitions + 1)
    tail = b"\0" + bytes(4) + b"\0"
    mask = b"\xff" * len(head) + free * partitions + b"\xff" + bytes(4) + b"\xff"
    return head + part * partitions + tail, mask


@dataclass(frozen=True)
class Requests:
    """Files for the client. ``frame_bytes`` is the length of a request on average."""

    frames: Path
    answers: Path
    mask: Path
    partitions: int
    records: int
    frame_bytes: float

    @classmethod
    def make(
        cls, topic: str, codec: str, kilobytes: int, partitions: int, carrier: Carrier
    ) -> Requests:
        """Write the files below build/."""
        folder = ends.BUILD.parent / "broker"
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"{topic}-{codec}-{kilobytes}-{partitions}-{carrier}"
        made = []
        for first in range(FRAMES):
            numbers = enumerate(range(first, first + partitions))
            parts = (recorded(codec, kilobytes, number % FRAMES) for _, number in numbers)
            data = [partition_data(n, part, carrier) for n, part in enumerate(parts)]
            made.append(load.request(topic.encode(), data))
        body, mask = answer(topic, partitions)
        found = cls(
            place.with_suffix(".frames"),
            place.with_suffix(".answers"),
            place.with_suffix(".mask"),
            partitions,
            records_in(codec, kilobytes),
            sum(map(len, made)) / len(made),
        )
        found.frames.write_bytes(b"".join(made))
        found.answers.write_bytes(struct.pack(">hhi", 0, 9, len(body)) + body)
        found.mask.write_bytes(mask)
        return found

    def count(self, bytes_per_second: float, seconds: float) -> int:
        """Return how many requests are due in that time."""
        return max(1, round(bytes_per_second * seconds / self.frame_bytes))

    def send(
        self,
        port: int,
        bytes_per_second: float,
        seconds: float,
        *,
        how: How = ONE_CONNECTION,
        number: int | None = None,
    ) -> dict[str, Any]:
        """Send them, so many in that time or ``number``; returns when all were answered.

        Returns batches, bytes, seconds and the latency of a request (p50_us, p99_us).
        Raises RuntimeError if a response is another than the expected.
        """
        number = number or self.count(bytes_per_second, seconds)
        words = [port, self.frames, self.answers, self.mask, how.connections, WINDOW, number]
        program = [str(ends.wire_tls()), "paced-tls"] if how.tls else [str(ends.wire()), "paced"]
        done = subprocess.run(
            [*program, *map(str, [*words, bytes_per_second])],
            preexec_fn=how.place.take,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds * 5 + ANSWER_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"{self.frames.stem}: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found | {"batches": found["requests"] * self.partitions}
