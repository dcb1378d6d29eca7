"""One peer in a process of its own: a request a line on stdin, an answer a line on stdout, both
JSON.

    {"operation": "check", "path": "v2-lz4-1-100.bin", "samples": 9, "sample_ns": 3e6, "fast": 9000}
    {"ns": [...], "busy": [...], "probe": [...], "records": 100}

``ns`` is this thread's CPU time a batch; ``busy`` the share of the sample in which it ran;
``probe`` how long a fixed piece of work took next to it. Sampling goes on, up to four times as
long, until ``samples`` of them have a probe of at most ``fast`` (0: any will do): a virtual core
has two speeds, and only samples of the fast one can be compared.

    {"operation": ..., "path": ..., "count_calls": 20}      counts allocator calls instead

    python worker.py PEER
"""

from __future__ import annotations

import ctypes
import json
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns
from typing import Any


@dataclass
class Job:
    """A statement to time, the names in it, how many batches one execution validates, and what it
    answered.

    Without a statement the facts alone are the answer.
    """

    statement: str
    names: dict[str, Any]
    batches: int = 1
    facts: dict[str, Any] = field(default_factory=dict)


Peer = dict[str, Callable[[bytes], Job]]


def peer_named(name: str) -> Peer:
    if name.startswith("batchval"):
        from bench.validation import peer_batchval

        return peer_batchval.OPERATIONS
    if name == "claims":
        from bench.validation import peer_claims

        return peer_claims.OPERATIONS
    from bench.validation import peer_clients

    return peer_clients.PEERS[name]


def sample(
    job: Job, samples: int, sample_ns: float, fast: float, probe: Callable[[], float]
) -> dict[str, Any]:
    timer = timeit.Timer(job.statement, timer=thread_time_ns, globals=job.names)
    timer.timeit(1)
    again = 1
    while (took := timer.timeit(again)) < sample_ns / 10:
        again *= 4
    again = max(1, round(again * sample_ns / max(took, 1)))
    if took > 10 * sample_ns:
        samples = min(samples, 5)
    out: dict[str, Any] = {"ns": [], "busy": [], "probe": []}
    fast_ones = 0
    while fast_ones < samples and len(out["ns"]) < 4 * samples:
        before = probe()
        start = perf_counter_ns()
        cpu = timer.timeit(again)
        wall = perf_counter_ns() - start
        after = probe()
        out["ns"].append(round(cpu / again / job.batches, 2))
        out["busy"].append(round(min(cpu / wall, 1.0), 3))
        out["probe"].append(round(max(before, after)))
        fast_ones += not fast or out["probe"][-1] <= fast
    return out


def main() -> None:
    from bench.validation import native

    library = native.load()
    library.probe.restype = ctypes.c_double
    peer = peer_named(sys.argv[1])
    counter = native.allocation_counter()
    path, data = None, b""
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if request.get("path") != path:
                path = request.get("path")
                data = b""
                if path:
                    with open(path, "rb") as file:
                        data = file.read()
            job = None  # what the one before has kept is freed first
            job = peer[request["operation"]](data)
            if not job.statement:
                answer = {}
            elif "count_calls" in request:
                answer = counter(job, request["count_calls"])
            else:
                answer = sample(
                    job,
                    request["samples"],
                    request["sample_ns"],
                    request.get("fast", 0),
                    library.probe,
                )
            answer |= job.facts
        except Exception as error:  # one operation that a peer lacks must not end the round
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
