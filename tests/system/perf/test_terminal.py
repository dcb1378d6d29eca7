"""The progress line: on a terminal alone, never wider than it, never in the lines that others
read.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

import pytest

from batchval.cli.output import how_far
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.perf.conftest import fill
from tests.unit.perf.kafka_parser import parse_consumer
from tests.unit.perf.producer_parser import parse

#: what the terminal gets between two texts of the progress line: the next one replaces it, or it is
#: removed; a line that was removed may start again
CONTROLS = re.compile(r"\r\x1b\[2K|\n\x1b\[\?25h\r\x1b\[1A\x1b\[2K|\x1b\[\?25l\x1b\[\?25h")


def watched(*options: object, stdout_too: bool = False, columns: int = 60) -> tuple[int, str, str]:
    """(exit code, stdout, what the terminal was sent) of a run whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen: list[bytes] = []

    def look() -> None:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # nobody has the other end any more
                return
            seen.append(part)

    with subprocess.Popen(
        [sys.executable, "-m", "batchval", "perf", *map(str, options)],
        stdin=subprocess.DEVNULL,
        stdout=theirs if stdout_too else subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
    ) as run:
        os.close(theirs)
        looking = threading.Thread(target=look)
        looking.start()
        out = "" if run.stdout is None else run.stdout.read()
        code = run.wait(120)
    looking.join(10)
    os.close(ours)
    return code, out, b"".join(seen).decode().replace("\r\n", "\n")


@pytest.mark.jvm
def test_perf_produce(broker: KafkaBroker) -> None:
    fill(broker.bootstrap, "watched", 1, 0)
    where = ["--bootstrap-server", broker.bootstrap, "--topic", "watched", "--record-size", 10]
    some = [
        "produce",
        *where,
        "--num-records",
        2000,
        "--throughput",
        2000,
        "--reporting-interval",
        300,
    ]
    code, out, terminal = watched(*some)
    assert code == 0
    assert parse(out)[-1].records == 2000
    assert "\x1b" not in out
    first, *lines = CONTROLS.split(terminal)
    assert first == ""
    assert lines[-1].startswith("latency: ")  # gone at the end, before the details
    assert len(lines) > 3
    assert any(" %, " in line and line.endswith(" records/s") for line in lines)
    code, _, terminal = watched(*some, stdout_too=True)
    assert code == 0
    shown = [text for text in CONTROLS.split(terminal) if not text.endswith(" records/s")]
    # no line has a rest of progress before it
    assert [line.kind for line in parse("".join(shown))][-1] == "total"


@pytest.mark.jvm
def test_perf_consume(broker: KafkaBroker, topic: str) -> None:
    where = [
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--threads",
        2,
        "--timeout",
        1500,
    ]
    some = [
        "consume",
        *where,
        "--num-records",
        20_001,
        "--show-detailed-stats",
        "--reporting-interval",
        300,
    ]
    code, out, terminal = watched(*some, columns=20)
    assert code == 1
    rows = parse_consumer(out)
    assert sum({row["threadId"]: row["data.consumed.in.nMsg"] for row in rows}.values()) == 20_000
    texts = CONTROLS.split(terminal)
    assert texts[-1] == ""
    assert max(map(len, texts)) == 20  # cut to the terminal
    assert any(text.startswith("20,000 records, 100") for text in texts)


def test_how_far() -> None:
    assert how_far(5_000, 20_000, 2.0) == "5,000 records, 25 %, 2,500 records/s"
    assert how_far(5_000, None, 2.0, 8.0) == "5,000 records, 25 %, 2,500 records/s"
    assert how_far(0, 10, 0.0) == "0 records, 0 %, 0 records/s"
    assert how_far(12, 10, 1.0, 4.0) == "12 records, 100 %, 12 records/s"
