"""Validate the batches of a file of requests by the library alone: what the gate adds a relay to.

Prints one line of JSON: the requests, and the CPU seconds that their batches took.

    python -m bench.proxy.library FRAMES SECONDS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.protocol.walkers.produce import ProduceRequestView
from bench.proxy.load import frame_size


def batches(path: Path) -> Iterator[memoryview]:
    data = path.read_bytes()
    while data:
        size = frame_size(data)
        batch = ProduceRequestView(data[4:size]).records(0)
        assert batch is not None
        yield batch
        data = data[size:]


def main(path: Path, seconds: float) -> None:
    validator = LogValidator(TopicPolicy(max_message_bytes=2**31 - 1))
    found = list(batches(path))
    now_ms = int(time.time() * 1000)
    for batch in found:
        assert validator.check(batch, now_ms=now_ms).ok
    count, began, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        for batch in found:
            validator.check(batch, now_ms=now_ms)
        count += len(found)
    print(json.dumps({"requests": count, "cpu_s": time.process_time() - began}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
