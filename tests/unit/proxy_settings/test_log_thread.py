"""The log's thread: a reader of stderr that hangs holds up nobody; what it misses is counted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from batchval.proxy.watch import audit_log
from batchval.proxy.watch.audit_log import LineWriter
from tests.support.ports import free_port
from tests.support.proxy import eventually

LINE = b"x" * 999 + b"\n"


def count_line(count: int) -> bytes:
    return b"left out %d\n" % count


class Pipe:
    """Standard error, and its reader."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read_all(self) -> list[bytes]:
        """Read until nothing comes any more, and return the lines."""
        os.set_blocking(self.reader, False)
        found = b""
        while True:
            try:
                found += os.read(self.reader, 1 << 16)
            except BlockingIOError:
                return found.splitlines(keepends=True)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.set_blocking(pipe.reader, False)
    for one in (pipe.writer, pipe.reader):
        os.close(one)


def test_lines_are_written_in_their_order(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writer, count_line)
    for i in range(100):
        lines.put(b"%d\n" % i)
    lines.flush()
    assert pipe.read_all() == [b"%d\n" % i for i in range(100)]
    assert lines.left_out == 0


def test_a_reader_that_hangs_holds_up_nobody(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    # The pipe has 64 KiB, the queue as much: what comes then is counted, and a line says so.
    monkeypatch.setattr(audit_log, "MAX_WAITING_BYTES", 64 << 10)
    lines = LineWriter(pipe.writer, count_line)
    for _ in range(1_000):
        lines.put(LINE)
    missed = lines.left_out
    assert 800 < missed < 1_000
    begun = time.monotonic()
    lines.flush(0.01)
    lines.flush(60)  # not waited for again
    assert time.monotonic() - begun < 30
    found: list[bytes] = []

    def is_whole() -> bool:
        found.extend(pipe.read_all())
        return b"".join(found).endswith(b"left out %d\n" % missed)

    eventually(is_whole)
    assert b"".join(found) == LINE * (1_000 - missed) + b"left out %d\n" % missed
    lines.put(b"after\n")
    eventually(lambda: pipe.read_all() == [b"after\n"])
    assert lines.left_out == missed


def test_what_logs_while_a_line_is_taken_does_not_wait_for_itself(pipe: Pipe) -> None:
    # The cycle collector comes anywhere, and what it frees may log: in this thread.
    lines = LineWriter(pipe.writer, count_line)

    def log() -> None:
        with lines._lock:
            lines.put(b"freed\n")

    thread = threading.Thread(target=log, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    eventually(lambda: pipe.read_all() == [b"freed\n"])


@pytest.mark.parametrize("error", [errno.EPIPE, errno.EBADF, errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_is_counted_and_tried_again(
    error: int, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "AGAIN_S", 0.001)
    is_broken, write = True, os.write

    def written(descriptor: int, data: bytes) -> int:
        if descriptor == pipe.writer and is_broken:
            raise OSError(error, os.strerror(error))
        return write(descriptor, data)

    monkeypatch.setattr(audit_log.os, "write", written)
    lines = LineWriter(pipe.writer, count_line)
    for _ in range(3):
        lines.put(LINE)
    eventually(lambda: lines.left_out == 3)
    is_broken = False
    eventually(lambda: pipe.read_all() == [b"left out 3\n"])


def test_a_line_that_was_written_in_part_is_finished(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "AGAIN_S", 0.001)
    takes, write = [5, 0, 0], os.write

    def written(descriptor: int, data: bytes) -> int:
        if descriptor != pipe.writer or not takes:
            return write(descriptor, data)
        if (most := takes.pop(0)) == 0:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, data[:most])

    monkeypatch.setattr(audit_log.os, "write", written)
    lines = LineWriter(pipe.writer, count_line)
    lines.put(b"the first\n")  # its rest fails, and is tried again with the next line, which fails
    eventually(lambda: len(takes) == 1)
    lines.put(b"lost\n")
    eventually(lambda: lines.left_out == 1)
    found: list[bytes] = []
    eventually(
        lambda: found.extend(pipe.read_all()) or b"".join(found) == b"the first\nleft out 1\n"
    )


def test_a_descriptor_that_does_not_block_is_waited_for(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.set_blocking(pipe.writer, False)
    lines = LineWriter(pipe.writer, count_line)
    for _ in range(200):
        lines.put(LINE)
    found: list[bytes] = []
    eventually(lambda: found.extend(pipe.read_all()) or b"".join(found) == LINE * 200)
    assert lines.left_out == 0


SCRIPT = """
import logging, os, sys
from batchval.proxy.settings.config import Log
from batchval.proxy.watch.audit_log import lines_left_out, write_in_thread
write_in_thread(Log(format="json"))
logging.getLogger("batchval.proxy").warning("ours", extra={"facts": {"n": 1}})
logging.getLogger("asyncio").warning("theirs")
logging.getLogger("asyncio").info("not shown")
"""


def run(script: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", script], timeout=60, check=False, **options)


def test_all_lines_are_there_at_the_end_of_the_process() -> None:
    ours, theirs = run(SCRIPT, stderr=subprocess.PIPE).stderr.splitlines()
    assert (json.loads(ours)["event"], json.loads(ours)["n"], theirs) == ("ours", 1, b"theirs")


def test_a_closed_stderr_is_never_written_to() -> None:
    # Its number may be that of a client's connection by then.
    opened = "import os, sys\nfile = os.memfd_create('client')\nassert file == 2, file\n"
    checked = """
import time
while lines_left_out() < 2: time.sleep(0.001)
print(os.fstat(2).st_size)
"""
    closed = ["bash", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, opened + SCRIPT + checked]
    ended = subprocess.run(closed, timeout=60, check=False, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (0, b"0\n")


@pytest.mark.alone
def test_a_gate_whose_stderr_hangs_serves_and_ends(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe.writer, b"\n" * 4096)
    os.set_blocking(pipe.writer, True)
    port = free_port()
    options = ("--listen", f"127.0.0.1:{port}", "--upstream", "127.0.0.1:1")
    command = (sys.executable, "-m", "batchval", "proxy", *options, "--metrics", "127.0.0.1:0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=pipe.writer) as gate:
        try:
            assert gate.stdout is not None
            metrics = [gate.stdout.readline() for _ in range(2)][-1].split()[-1].decode()
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    assert stranger.recv(1) == b""
            with urllib.request.urlopen(metrics, timeout=60) as answer:
                assert b"batchval_gate_log_lines_left_out_total 0.0" in answer.read()
            gate.send_signal(signal.SIGTERM)
            assert gate.wait(60) == 0
        finally:
            gate.kill()
