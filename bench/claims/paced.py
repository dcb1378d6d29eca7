"""Validate produce requests in one way at a fixed pace: CPU time of this process, one thread
validation.

    python paced.py WAY      WAY: shallow, claims, audit, none

Reads lines ``FILE BYTES_PER_SECOND SECONDS`` (0: as fast as it goes), as PacedCommand of the oracle
does, and answers each with a line of JSON: content fed, wall time, CPU time of the process and of
the thread. Each request is validated by one call of check_ranges, as a gate would make it:

    shallow   claims ignored
    claims    claims in tags, trusted: the list of them is made for each request
    audit     the same by a ledger that samples 1 % of a sender's batches
    none      nothing is validated: what the pace alone costs
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.claims import streams
from bench.validation import peer_claims

LEAST_SLEEP_NS = 1_000_000
Request = tuple[bytes, list[tuple[int, int]], list[bytes], str]
NOW_MS = peer_claims.NOW_MS


def load(path: Path) -> tuple[list[Request], list[int]]:
    """Return the requests of a file, as a proxy holds them, and the size of each one's records."""
    requests, sizes = [], []
    for number, (buffer, lengths, size) in enumerate(streams.read(path)):
        pairs, tags, start = [], [], 0
        for length in lengths:
            pairs.append((start, length))
            tags.append(peer_claims.tag_of(buffer[start : start + length]))
            start += length
        sender = f"CN=producer-{number % streams.PRODUCERS}"
        requests.append((buffer, pairs, tags, sender))
        sizes.append(size)
    return requests, sizes


def ways() -> dict[str, Callable[[Request], bool]]:
    """Return functions by name; each returns whether all batches of a request are accepted."""
    validator = peer_claims.validator
    check_ranges = validator.check_ranges
    ledger = peer_claims.believed(
        senders=tuple(f"CN=producer-{n}" for n in range(streams.PRODUCERS))
    )

    def shallow(request: Request) -> bool:
        buffer, ranges, _, _ = request
        return check_ranges(buffer, ranges, now_ms=NOW_MS).all_ok

    def claims(request: Request) -> bool:
        buffer, ranges, tags, _ = request
        trusted = [(tag, "trust") for tag in tags]
        return check_ranges(buffer, ranges, now_ms=NOW_MS, claims=trusted).all_ok

    def audit(request: Request) -> bool:
        buffer, ranges, tags, sender = request
        return ledger.check_ranges(
            validator, buffer, ranges, sender=sender, now_ms=NOW_MS, tags=tags
        ).all_ok

    return {"shallow": shallow, "claims": claims, "audit": audit, "none": lambda request: True}


class Feeder:
    def __init__(self, way: str) -> None:
        self.validate = ways()[way]
        self.path = ""
        self.requests: list[Request] = []
        self.sizes: list[int] = []
        self.next = 0

    def feed(self, path: str, bytes_per_second: float, seconds: float) -> dict[str, int]:
        if path != self.path:
            (self.requests, self.sizes), self.path, self.next = load(Path(path)), path, 0
        validate, requests, sizes, turn = self.validate, self.requests, self.sizes, self.next
        content = batches = 0
        process, thread = time.process_time_ns(), time.thread_time_ns()
        start = now = time.perf_counter_ns()
        end = start + int(seconds * 1e9)
        while now < end:
            due = start + int(content / bytes_per_second * 1e9) if bytes_per_second else now
            if due > now:
                time.sleep(min(max(due - now, LEAST_SLEEP_NS), end - now) / 1e9)
            else:
                request = requests[turn]
                if not validate(request):
                    raise AssertionError("a batch is refused")
                content += sizes[turn]
                batches += len(request[2])
                turn = (turn + 1) % len(requests)
            now = time.perf_counter_ns()
        self.next = turn
        return {
            "content": content,
            "batches": batches,
            "wall_ns": now - start,
            "cpu_ns": time.process_time_ns() - process,
            "thread_ns": time.thread_time_ns() - thread,
        }


def main() -> None:
    feeder = Feeder(sys.argv[1])
    for line in sys.stdin:
        path, rate, seconds = line.split()
        try:
            answer: dict[str, object] = dict(feeder.feed(path, float(rate), float(seconds)))
        except Exception as error:  # one point that fails must not end the round
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
