"""tools/wheels.py: names, tags and records of the wheels, and which policies hold."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from tools import wheels

INFO = "batchval-1.0.dist-info"
FILES = {
    "batchval/__init__.py": b"",
    "batchval/a.so": b"\x7fELF",
    f"{INFO}/METADATA": b"Name: batchval\n",
}
TAGS = ["cp312-cp312-manylinux_2_17_x86_64", "cp312-cp312-manylinux2014_x86_64"]


def test_a_wheel_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path = wheels.write_wheel(FILES, TAGS, tmp_path)
    assert path.name == "batchval-1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with zipfile.ZipFile(path) as archive:
        assert {one.date_time for one in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
        assert archive.namelist()[-1] == f"{INFO}/RECORD"
        text = archive.read(f"{INFO}/WHEEL").decode()
        assert [line for line in text.splitlines() if line.startswith("Tag")] == [
            f"Tag: {tag}" for tag in TAGS
        ]
        recorded = dict(
            line.split(",", 1) for line in archive.read(f"{INFO}/RECORD").decode().splitlines()
        )
        assert set(recorded) == set(archive.namelist())
    sha = base64.urlsafe_b64encode(hashlib.sha256(b"\x7fELF").digest()).decode().rstrip("=")
    assert recorded["batchval/a.so"] == f"sha256={sha},4"
    assert (
        wheels.write_wheel(dict(reversed(FILES.items())), TAGS, tmp_path).read_bytes()
        == path.read_bytes()
    )


@pytest.mark.parametrize(
    ("found", "wanted", "holds"),
    [
        ("manylinux_2_17_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", False),
        ("manylinux_2_17_aarch64", "manylinux_2_17_x86_64", False),
        ("musllinux_1_2_x86_64", "musllinux_1_2_x86_64", True),
        ("musllinux_1_1_x86_64", "manylinux_2_17_x86_64", False),
        ("linux_x86_64", "manylinux_2_17_x86_64", False),
    ],
)
def test_which_policy_holds(found: str, wanted: str, holds: bool) -> None:
    assert wheels.holds(found, wanted) is holds
