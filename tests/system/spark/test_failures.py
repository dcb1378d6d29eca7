"""Test Spark's failures, each reported in one line; a run without one shows no text of Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from batchval.audit.audit_run import Work, audit
from batchval.audit.local import WorkersLost
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.store import SegmentInfo
from batchval.spark import engine, start
from batchval.spark.failures import of_error, of_log, python_cause
from tests.system.spark.logs import series, write

ROOT = Path(__file__).resolve().parents[3]
TALK = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/21 17:48:27 WARN Utils: Your hostname resolves to a loopback address
Setting default log level to "WARN".
"""
JOB = """An error occurred while calling o5.collectToPython.
: org.apache.spark.SparkException: Job aborted due to it: x.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
OSError: [Errno 28] cannot be written: No space left on device: '/out'

	at org.apache.spark.api.python.Reader.handle(PythonRunner.scala:5)
Caused by: java.lang.IllegalStateException: later
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TALK, "it says nothing"),
        ("", "it says nothing"),
        (
            TALK
            + 'Exception in thread "main" org.apache.spark.SparkException: Master must be x\n\tat org.y(Z.scala:1)\n',
            "Master must be x",
        ),
        (
            "Invalid maximum heap size: -Xmxx\nError: Could not create the Java Virtual Machine.\n",
            "Invalid maximum heap size: -Xmxx",
        ),
        (
            TALK + "26/11/21 17:50:10 ERROR Backend: All masters are unresponsive!\n",
            "All masters are unresponsive!",
        ),
    ],
)
def test_the_telling_line_of_a_log(log: str, line: str) -> None:
    assert of_log(log) == line


def test_the_telling_line_of_an_error() -> None:
    java = (
        "An error occurred.\n: io.a.ClientException: An error has occurred.\n\tat x\n"
        "Caused by: java.net.B: Refused\n"
    )
    assert of_error(RuntimeError(java)) == "An error has occurred.: Refused"
    assert of_error(RuntimeError("one\ntwo")) == "one"
    assert of_error(RuntimeError("")) == "RuntimeError"
    assert (
        of_error(RuntimeError(JOB))
        == "OSError: [Errno 28] cannot be written: No space left on device: '/out'"
    )
    assert python_cause(java) is None
    assert len(of_error(RuntimeError(": a.B: " + "x" * 100_000))) <= 500


class Session:
    stopped = False

    def stop(self) -> None:
        Session.stopped = True
        raise ConnectionRefusedError("no JVM")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (Py4JNetworkError(JOB), OSError, "No space left"),
        (
            Py4JNetworkError(JOB.replace("OSError", "KeyError")),
            engine.JobFailed,
            "the Spark job failed: KeyError",
        ),
        (
            ConnectionRefusedError(111, "Connection refused"),
            WorkersLost,
            "the Spark job failed: .*refused",
        ),
    ],
)
def test_the_end_of_a_job_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], message: str
) -> None:
    def waves(*_: Any) -> Any:
        yield "first"
        raise error

    monkeypatch.setattr(engine, "_waves", waves)
    session: Any = Session()
    results = engine._and_stop(session, True, engine.run_on(session, [], Options(), None))
    assert next(results) == "first"  # type: ignore[comparison-overlap]
    with pytest.raises(kind, match=message):
        next(results)
    assert Session.stopped


def test_an_engine_that_does_not_start_empties_no_folder(tmp_path: Path) -> None:
    segment = SegmentInfo("/l/t-0/0.log", "t", 0, 0, 5, 0)
    todo = Work([segment], [Range(segment, 0, 5)])
    before = {name: (tmp_path / name) for name in ("_batchval_audit", "_SUCCESS", "errors")}
    for path in before.values():
        path.mkdir() if path.name == "errors" else path.touch()

    def no_engine(*_: Any) -> Any:
        raise start.NotStarted("no")

    with pytest.raises(start.NotStarted):
        audit(todo, Options(), no_engine, str(tmp_path))
    assert all(path.exists() for path in before.values())


def test_a_jvm_that_ends_at_once_is_reported_with_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import SparkContext, java_gateway
    from pyspark.errors import PySparkRuntimeError

    def launch(conf: Any, popen: dict[str, Any]) -> Any:
        assert dict(conf.getAll()) == {"spark.x": "y"}
        popen["stderr"].write(TALK.encode() + b"Error: no such thing\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with (
        tempfile.TemporaryFile() as message,
        pytest.raises(start.NotStarted, match="no such thing"),
    ):
        start._launch({"spark.x": "y"}, message)


@pytest.mark.alone
def test_an_interrupt_waits_until_the_jvm_is_up() -> None:
    """Interrupt a start: that JVM reads the end of its stdin when it is up, and not before."""
    before = signal.getsignal(signal.SIGINT)
    reached = []

    def begin() -> None:
        with start._interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert reached
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_connect_server_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        start._answers(f"sc://127.0.0.1:{port}/;token=x")
    with pytest.raises(start.NotStarted, match=f"at 127.0.0.1:{port}: Connection refused"):
        start._answers(f"sc://127.0.0.1:{port}")
    for url in ("sc://", "sc://host:port", "sc://host:99999"):
        with pytest.raises(start.NotStarted, match="expected sc://host:port"):
            start._answers(url)


@pytest.mark.jvm
@pytest.mark.slow
def test_an_audit_on_spark_says_nothing_but_its_own_lines(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a-0", series(4))
    write(tmp_path / "in" / "b-0", series(4))
    for words, code, message in (
        (("--json",), 0, ""),
        (
            ("--master", "local[x]"),
            2,
            "batchval audit: Spark does not start: Could not parse Master URL: 'local[x]'\n",
        ),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "batchval", "audit", str(tmp_path / "in"), *words],
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (code, message)
        assert all(line.startswith("{") for line in done.stdout.splitlines())
