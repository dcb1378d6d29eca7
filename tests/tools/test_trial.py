"""tools/trial: which wheels it takes, what it lays out, which answers of a system it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import dist
from tools.trial import plan
from tools.trial.__main__ import table
from tools.trial.systems import ArmTree, System, systems
from tools.wheels import TARGETS, VERSIONS


class Answering(System):
    """A system that returns prepared answers, and keeps what it was asked for."""

    def __init__(self, folder: Path, answers: dict[str, str] | None = None) -> None:
        super().__init__("here", "3.12")
        self.folder, self.inside, self.python = folder, "/trial", "/usr/bin/python3"
        self.answers = answers or {}
        self.asked: list[tuple[str, int]] = []

    def make(self, jobs: int) -> None:
        pass

    def run(self, *words: str, code: int = 0) -> str:
        line = " ".join(words)
        self.asked.append((line, code))
        return next((answer for part, answer in self.answers.items() if part in line), "")


GOOD = {
    "batchval --version": "batchval 1.0\nkernel: sse42 (chosen)\n",
    "check /trial/good": "1 file, 3 batches\n",
    "check /trial/damaged": "crc-mismatch\n",
    "conformance": "...\nconformance: 7 cases agree\n",
    "dist_probe": "187 modules imported, 9 of other extras\n",
    "python_version": "3.12.1\n",
}


def wheel(folder: Path, name: str) -> Path:
    path = folder / f"batchval-1.0-{name}.whl"
    path.touch()
    return path


def test_a_wheel_fits_version_family_and_processor(tmp_path: Path) -> None:
    glibc = wheel(tmp_path, "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64")
    musl = wheel(tmp_path, "cp312-cp312-musllinux_1_2_x86_64")
    wheel(tmp_path, "cp311-cp311-musllinux_1_2_aarch64")
    assert plan.fitting(tmp_path, "3.12", "manylinux", "x86_64") == glibc
    assert plan.fitting(tmp_path, "3.12", "musllinux", "x86_64") == musl
    with pytest.raises(
        dist.DistError, match=r"no wheel for CPython 3\.11, musllinux x86_64: make wheels$"
    ):
        plan.fitting(tmp_path, "3.11", "musllinux", "x86_64")


def test_tags_name_the_processor() -> None:
    assert plan.tags("musllinux", "aarch64") == [
        "musllinux_1_2_aarch64",
        "musllinux_1_1_aarch64",
        "linux_aarch64",
    ]
    assert {"manylinux2014_x86_64", "manylinux_2_28_x86_64"} <= set(
        plan.tags("manylinux", "x86_64")
    )


def test_systems_cover_every_version_and_every_target() -> None:
    every = systems().values()
    assert {one.version for one in every} == set(VERSIONS)
    tried = {
        f"{one.machine}-{ {'manylinux': 'glibc', 'musllinux': 'musl'}[one.family] }"
        for one in every
    }
    assert tried == set(TARGETS)


def test_the_folder_has_what_the_steps_read(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "cp312-cp312-linux_x86_64")
    system = Answering(tmp_path / "trial")
    system.folder.mkdir()
    (system.folder / "venv").touch()
    plan.fill(system, wheels)
    assert sorted(path.name for path in system.folder.iterdir()) == [
        "corpus",
        "damaged",
        "dist_probe.py",
        "golden",
        "good",
        "wheels",
    ]
    good, damaged = (
        next((system.folder / name).iterdir()).read_bytes() for name in ("good", "damaged")
    )
    assert sum(one != other for one, other in zip(good, damaged, strict=True)) == 1


def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changed: str
) -> tuple[plan.Row, Answering]:
    wheel(tmp_path, "cp312-cp312-manylinux_2_17_x86_64")
    monkeypatch.setattr(plan, "dependencies", lambda system, wheel: tmp_path)
    monkeypatch.setattr(plan, "fill", lambda system, wheels: None)
    answers = GOOD | {key.replace("_", " "): answer for key, answer in changed.items()}
    system = Answering(tmp_path, answers)
    return plan.attempt(system, tmp_path, 1), system


def test_a_row_says_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, system = attempt(tmp_path, monkeypatch)
    assert row.passed
    assert (row.version, row.platform, row.ran) == ("3.12.1", "manylinux x86_64", tuple(plan.STEPS))
    assert row.result == "ok: kernel sse42; 7 cases agree; 187 modules imported, 9 of other extras"
    lines = dict(system.asked)
    assert lines["/trial/venv/bin/batchval check /trial/damaged"] == 1
    assert (
        "/trial/venv/bin/python -m pip install --no-index --find-links /trial/wheels batchval"
        in lines
    )
    assert table([row]).splitlines()[2].count("|") == 6


@pytest.mark.parametrize(
    ("answers", "ran", "problem"),
    [
        ({"batchval_--version": "batchval 1.0"}, 2, "batchval --version names no kernel"),
        ({"check_/trial/good": ""}, 3, "batchval check of a good segment"),
        ({"check_/trial/damaged": "1 file"}, 4, "does not name crc-mismatch"),
    ],
)
def test_a_wrong_answer_fails_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], ran: int, problem: str
) -> None:
    row, _ = attempt(tmp_path, monkeypatch, **answers)
    assert not row.passed
    assert len(row.ran) == ran
    assert row.result.startswith("FAILED: ")
    assert problem in row.result


def test_a_missing_wheel_fails_the_row(tmp_path: Path) -> None:
    row = plan.attempt(Answering(tmp_path), tmp_path, 1)
    assert not row.passed
    assert row.ran == ()
    assert "no wheel for CPython 3.12" in row.result


def test_the_environment_of_arm_starts_qemu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.trial.systems._program", lambda name: f"/usr/bin/{name}")
    system = ArmTree("arm-bookworm", "3.11")
    system.tree, system.folder, system.python = (
        tmp_path / "tree",
        tmp_path / "trial",
        "/tree/python3.11",
    )
    system.environment()
    script = (system.folder / "venv/bin/python").read_text("utf-8")
    assert script.startswith("#!/bin/sh\nexec /usr/bin/qemu-aarch64-static -L ")
    assert "'/tree/python3.11' \"$@\"" in script
    assert (
        (system.folder / "venv/pyvenv.cfg")
        .read_text("utf-8")
        .startswith(f"home = {tmp_path}/tree/usr/bin\n")
    )


def test_another_exit_code_is_an_error_with_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(System, "command", lambda self, *words: list(words))
    system = System("here-3.12", "3.12")
    assert (
        system.run("/bin/sh", "-c", "echo $PATH; exit 1", code=1) == f"{system.inside}/venv/bin\n"
    )
    with pytest.raises(dist.DistError, match=r"exit code 3, expected 0\nproblem"):
        system.run("/bin/sh", "-c", "echo problem >&2; exit 3")
