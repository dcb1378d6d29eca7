"""tools/arm.py, where no ARM64 machine is needed: what it installs, what it leaves out, which
modules it takes.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest

from tools import arm, arm_machine

CORE = arm.ROOT / "tests" / "core"
#: distributions whose modules have another name
MODULES = {"kafka-python": "kafka", "python-snappy": "snappy", "pytest-xdist": "xdist"}


def imported(path: Path) -> set[str]:
    """Return the first names of all modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_all_that_the_core_tests_import_is_installed() -> None:
    lines = arm_machine.requirements()
    names = {re.split(r"[\[<>=!~ ;]", line)[0] for line in lines}
    assert names >= arm_machine.FOR_TESTS
    here = {"batchval", "tests", *sys.stdlib_module_names}
    wanted = set().union(*(imported(path) for path in CORE.glob("*.py"))) - here
    assert wanted <= {MODULES.get(name, name) for name in names}
    assert wanted >= {"numpy", "pytest"}


def test_what_is_left_out_exists() -> None:
    for name, why in arm.LEFT_OUT.items():
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (arm.ROOT / path).read_text("utf-8")
        assert why


def test_a_wheel_older_than_the_sources_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "setup.py",
        "batchval/core/crc_kernels.c",
        "batchval/core/inflate.c",
        "batchval/core/a.pyx",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000, 1000))
    wheels = tmp_path / "dist" / "wheels"
    wheels.mkdir(parents=True)
    monkeypatch.setattr(arm, "ROOT", tmp_path)
    assert arm.fitting_wheel() is None
    for tag, when in (
        ("cp312-cp312-manylinux_2_17_aarch64", 2000),
        ("cp311-cp311-manylinux_2_17_aarch64", 900),
    ):
        wheel = wheels / f"batchval-1-{tag}.whl"
        wheel.touch()
        os.utime(wheel, (when, when))
    assert arm.fitting_wheel() is None
    os.utime(wheel, (1100, 1100))
    assert arm.fitting_wheel() == wheel


def test_modules_are_taken_from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "batchval-1-cp311-cp311-manylinux_2_17_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("batchval/core/a.cpython-311-aarch64-linux-gnu.so", b"module")
        archive.writestr("batchval/core/a.py", b"")
    monkeypatch.setattr(arm_machine, "LIB", tmp_path / "lib")
    assert arm_machine.modules(wheel) == wheel.name
    found = [
        path.relative_to(tmp_path / "lib").as_posix()
        for path in (tmp_path / "lib").rglob("*")
        if path.is_file()
    ]
    assert found == ["batchval/core/a.cpython-311-aarch64-linux-gnu.so"]


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_machine.shutil, "which", lambda name: None)
    with pytest.raises(
        arm_machine.Missing, match=r"\Amissing: .*qemu-user-static.*run this as root on Debian\Z"
    ):
        arm_machine.programs()
