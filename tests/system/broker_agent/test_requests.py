"""Produce requests with tags, parsed by Kafka's classes with the agent: nothing is retained."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from batchval.core.claims import compute, to_tag
from tests.evidence.conformance import oracle
from tests.support.jvm_agents import broker_agent
from tests.support.proxy import batch, produce_frame

pytestmark = [pytest.mark.jvm, pytest.mark.alone]

PROGRAM = Path(__file__).with_name("Requests.java")
HEADER = 4 + 2 + 2 + 4 + 2 + len("test") + 1  # of the frame, before the request's body
TAG = 25206
MARGIN = 1 << 20  # bytes of heap that a JVM's own work may take


@pytest.mark.parametrize(
    ("version", "count"),
    [
        pytest.param("3.9.2", 1_000_000, marks=pytest.mark.slow),
        pytest.param("4.1.2", 1_000_000, marks=pytest.mark.slow),
        pytest.param("4.4.0", 10_000_000, marks=pytest.mark.slow),
    ],
)
def test_no_request_is_retained(tmp_path: Path, version: str, count: int) -> None:
    """Count the requests on the heap: only the one that the program keeps is left."""
    data = batch(b"value" * 20, codec=4)
    claims = compute(data)
    assert claims is not None
    tag = to_tag(claims, int.from_bytes(data[17:21], "big"))
    body = tmp_path / "body"
    body.write_bytes(produce_frame(1, ("topic", 0, data), tags=((TAG, tag),))[HEADER:])
    command = [oracle.java(), "-Xmx256m", f"-javaagent:{broker_agent()}=policy=verify"]
    command += ["-cp", str(oracle.jar(version)), str(PROGRAM), str(body), "9", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    carried, records, half, end = map(int, done.stdout.split())
    assert carried == 1
    assert records <= 3  # MemoryRecords.EMPTY and one more constant
    assert end < half + MARGIN
