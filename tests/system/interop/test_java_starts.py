"""Test the faster start of Java programs of tests: archives of classes, compiled sources."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from tests.support.class_archives import MAKES, archive_option
from tests.support.java_classes import compiled
from tests.system.interop.kafka_broker import ToolMissing, class_archive
from tests.system.interop.kafka_java import find_java

#: a command that need not exist: its JVM has no file ``release``
JAVA = "/nowhere/bin/java"


def writes(text: str, calls: list[str]):
    def fill(option: str) -> None:
        calls.append(option)
        Path(option.removeprefix(MAKES)).write_text(text)

    return fill


def test_an_archive_is_made_once(tmp_path: Path) -> None:
    calls: list[str] = []
    (option,) = archive_option(tmp_path / "broker", JAVA, writes("classes", calls))
    assert archive_option(tmp_path / "broker", JAVA, writes("others", calls)) == [option]
    assert len(calls) == 1
    assert Path(option.partition("=")[2]).read_text() == "classes"


def test_a_jvm_that_makes_none_is_not_asked_again(tmp_path: Path) -> None:
    calls: list[str] = []
    for _ in range(2):
        assert archive_option(tmp_path / "broker", JAVA, calls.append) == []
    assert len(calls) == 1


def test_nobody_waits_for_an_archive(tmp_path: Path) -> None:
    calls: list[str] = []
    archive_option(tmp_path / "broker", JAVA, calls.append)
    (kept,) = tmp_path.glob("*.jsa")
    kept.unlink()
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert archive_option(tmp_path / "broker", JAVA, calls.append) == []
    assert len(calls) == 1


def test_a_broker_that_makes_an_archive_uses_none() -> None:
    assert class_archive("broker", [f"{MAKES}/some/file"]) == []


@pytest.mark.jvm
def test_a_source_is_compiled_once(tmp_path: Path) -> None:
    try:
        java = find_java()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    source = tmp_path / "Says.java"
    source.write_text(
        'class Says { public static void main(String[] a) { System.out.print("one"); } }'
    )
    folder = compiled([source], "", java, tmp_path)
    assert compiled([source], "", java, tmp_path) == folder
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java, *quick, "-cp", str(folder), "Says"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "one"
    source.write_text(source.read_text().replace("one", "two"))
    assert compiled([source], "", java, tmp_path) != folder
