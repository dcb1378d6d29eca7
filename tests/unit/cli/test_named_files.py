"""Files that options name and that cannot be used: each command ends at once, with one line that
names the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.batches import batch, record
from tests.unit.cli.conftest import Ran

Run = Callable[..., Ran]
_SERVER = ("--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--num-records", "1")
_PRODUCE = ("perf", "produce", *_SERVER, "--record-size", "1")
_CONSUME = ("perf", "consume", *_SERVER)
_TRUST = ("--command-property", "security.protocol=SSL", "--command-property")

#: FILE stands for the file
READING = {
    "merge": ("perf", "merge", "FILE"),
    "compare": ("perf", "compare", "FILE", "FILE"),
    "payloads": ("perf", "produce", *_SERVER, "--payload-file", "FILE"),
    "properties": (*_PRODUCE, "--command-config", "FILE"),
    "workload": ("perf", "roundtrip", "--bootstrap-server", "b:1", "--workload", "FILE"),
    "rules": ("check", "--record-rules", "FILE", "."),
    "settings": ("proxy", "--check-config", "--config", "FILE"),
    "certificates": (
        *(*_CONSUME, *_TRUST, "ssl.truststore.type=PEM"),
        *("--command-property", "ssl.truststore.location=FILE"),
    ),
    "cases": ("conformance", "FILE"),
    "segment": ("check", "FILE"),
    "batches": ("claims", "show", "FILE"),
}
WRITING = {
    "result": (*_PRODUCE, "--output", "FILE"),
    "histogram": (*_PRODUCE, "--histogram", "FILE"),
    "page": (*_CONSUME, "--report", "FILE"),
    "score": ("conformance", "--exec", "true", "--page", "FILE", "."),
    "report": ("audit", "--engine", "local", "--report", "FILE", "SEGMENT"),
    "batches": ("claims", "strip", "SEGMENT", "--out", "FILE"),
}


@pytest.fixture
def ends(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs words with a file, and returns what the error says of it."""
    segment = tmp_path / "a-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(batch([record(0)]))

    def call(words: tuple[str, ...], file: str) -> str:
        names = {"SEGMENT": str(segment), "FILE": file}
        code, _, err = run(*(names.get(word, word.replace("=FILE", f"={file}")) for word in words))
        (line,) = (one for one in err.splitlines() if not one.startswith("conformance: "))
        assert code in (2, 3), line
        assert file.replace("\udcff", "\\udcff") in line
        return line

    return call


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_pipe_without_a_writer(
    ends: Callable[..., str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    line = ends(words, str(pipe))
    assert "nothing writes to this pipe" in line or "not a regular file" in line


@pytest.mark.parametrize("name", ["merge", "compare", "payloads", "properties", "rules"])
def test_a_device_without_an_end(ends: Callable[..., str], name: str) -> None:
    assert "longer than 16777216 bytes" in ends(READING[name], "/dev/zero")


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_outputs(ends: Callable[..., str], tmp_path: Path, words: tuple[str, ...]) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    assert "nothing reads this pipe" in ends(words, str(pipe))
    assert pipe.is_fifo()
    assert "irectory" in ends(words, str(tmp_path))
    assert "No such file or directory" in ends(words, str(tmp_path / "none" / "file"))


def test_a_special_file(ends: Callable[..., str]) -> None:
    assert "expected a regular file, or a pipe" in ends(WRITING["result"], "/proc/self/mem")
    assert "No space left on device" in ends(WRITING["batches"], "/dev/full")


def test_a_checked_output_is_not_left_behind(ends: Callable[..., str], tmp_path: Path) -> None:
    words = tuple("OUT" if word == "FILE" else word for word in WRITING["page"])
    page = tmp_path / "page.html"
    ends((*words[:-1], str(page), "--command-config", "FILE"), str(tmp_path / "none"))
    assert not page.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "--engine", "local", "--out", "FILE", "SEGMENT"),
        ("audit", "--engine", "local", "--since", "FILE", "SEGMENT"),
        ("audit", "--compare", "FILE", "FILE"),
    ],
)
def test_folders_of_audits(
    ends: Callable[..., str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (file := tmp_path / "file").touch()
    (tmp_path / "full").symlink_to("/dev/full")
    for name in (str(file), str(file / "below"), "x" * 300, str(tmp_path / "full")):
        line = ends(words, name)
        assert "[errno" not in line
    assert "the name is not UTF-8" in ends(words, "\udcff")


def test_pipes_of_a_shell() -> None:
    """Check that <(command) and >(command) work as files do."""
    command = 'exec "$0" -m batchval perf merge <(echo "{}") <(echo "[]") --output >(cat)'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "not the result of a perf run" in done.stderr
