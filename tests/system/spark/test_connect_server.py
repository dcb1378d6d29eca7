"""A Spark Connect server in a process of its own: the command, the sources, audit(spark)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import children, is_alive, until
from tests.system.spark.logs import a_cluster, plain

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.jvm, pytest.mark.long]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Spark's own script for the server in the foreground."""
    import pyspark

    from batchval.spark.start import NoJava, java_home

    try:
        home = java_home()
    except NoJava as error:
        pytest.skip(str(error))
    port, folder = free_port(), tmp_path_factory.mktemp("server")
    script = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        ["bash", script, "--wait", "--master", "local[2]", *words],
        stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"), cwd=folder,
        env={**os.environ, "JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path,
             "SPARK_LOG_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )  # fmt: skip
    try:
        _wait(process, port, folder / "log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        family = children(process.pid)  # the script's Java, which does not end with it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        until("the server has ended", lambda: not any(map(is_alive, family)))


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])


PROGRAM = """
import sys
from batchval.errors import BatchvalError
from batchval.spark import audit, register, session
server, logs, out = sys.argv[1:]
spark = session(server)
register(spark)
print(spark.read.format("kafka-segments").load(logs).count())
found = audit(spark, logs, out=out)
print(found.batches().count(), found.exit_code)
"""


def test_the_command_the_source_and_an_audit(server: str, tmp_path: Path) -> None:
    logs = a_cluster(tmp_path / "logs")
    expected = len(plain(logs))
    without_java = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere:/bin:/usr/bin"}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", *map(str, words)],
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=300, env=without_java,
        )  # fmt: skip

    done = run(
        "-m", "batchval", "audit", "--master", server, "--json", "--out", tmp_path / "one", logs
    )
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, summary["engine"], done.stderr) == (1, "spark", "")
    again = run("-m", "batchval", "audit", "--engine", "local", "--json", logs)
    local = json.loads(again.stdout.splitlines()[-1])
    assert {**summary, "engine": "local", "out": None} == local
    done = run("-c", PROGRAM, server, logs, tmp_path / "two")
    assert (done.returncode, done.stdout.split()) == (0, [str(expected), str(expected), "1"]), (
        done.stderr
    )
