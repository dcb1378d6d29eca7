"""The pipelining bench runs, tiny, over a relay. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.benches import ROOT, run

BENCH = ROOT / "bench" / "pipelining"


def test_pipelining_is_measured_and_written_down(tmp_path: Path) -> None:
    out = tmp_path / "result"
    command = [
        BENCH / "one_connection.py",
        "--quick",
        "--link",
        "relay",
        "--rtt",
        20,
        "--records",
        10,
    ]
    done = run(*command, "--out", out, "--fixed-buffer", 65536)
    assert done.returncode == 0, done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert [(row["cap"], row["buffer"]) for row in rows] == [(1, None), (5, None), (5, 65536)]
    for row in rows:
        assert row["order_kept"] is True
        assert row["peak_in_flight"] == row["cap"]
        assert row["bytes_per_second"] > 0
        assert row["bound"] == row["cap"] * row["rounds"][0]["request_bytes"] / 20 * 1000


def test_a_batch_out_of_order_is_seen() -> None:
    """Expect a refusal by the bench's broker, a stopped sender, and a row that shows it."""
    script = """
import struct, sys
from tests.support.produce_requests import Produce, records
from bench.pipelining.sink import Sink

class Transport:
    def write(self, data): answers.append(struct.unpack_from(">h", data, 23)[0])
answers = []
sink = Sink()
sink.connection_made(Transport())
for sequence in (0, 3, 9, 6):
    frame = b"".join(Produce(b"t", records(3), 3, 7, sequence).encode(1, None))
    while frame:
        buffer = sink.get_buffer(-1)
        count = min(len(buffer), len(frame), 1000)
        buffer[:count] = frame[:count]
        frame = frame[count:]
        del buffer
        sink.buffer_updated(count)
print(answers)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.strip() == "[0, 0, 45, 0]", done.stdout + done.stderr
