"""log.audit_file is bounded: full files are renamed, and no row is split or lost between them."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.life.file_checks import file_warnings
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.config import Log
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.watch import audit_file
from batchval.proxy.watch.audit_file import AuditFile, numbered, rotated_path
from tests.support.proxy import eventually
from tests.unit.proxy_settings.refused import Refused

SIZE = 32_000


def bounds(max_bytes: int, max_files: int) -> Log:
    """Return settings with these bounds, which are lower than a file's."""
    return Log().model_copy(update={"audit_max_bytes": max_bytes, "audit_max_files": max_files})


#: A writer of its own process: path, partition, rows.
WRITER = f"""
import sys
from pathlib import Path
from batchval.proxy.watch.audit_file import AuditFile
from tests.unit.proxy_settings.refused import Refused
audit = AuditFile(Path(sys.argv[1]), max_bytes={SIZE}, max_files=100)
audit.start()
for batch in range(int(sys.argv[3])):
    audit(Refused(partition=int(sys.argv[2]), batches=batch))
audit.stop()
assert audit.dropped == audit.failures == 0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "refused.jsonl"


@pytest.fixture
def started() -> Iterator[Callable[..., AuditFile]]:
    """Return what starts a writer, which ends after the test."""
    made: list[AuditFile] = []

    def start(path: Path, max_bytes: int | None = SIZE, max_files: int = 100) -> AuditFile:
        audit = AuditFile(path, max_bytes=max_bytes, max_files=max_files, look_s=0.01)
        audit.start()
        made.append(audit)
        return audit

    yield start
    for audit in made:
        audit.stop()


def files(path: Path) -> list[Path]:
    """Return the files, the oldest first."""
    found = [one for one in path.parent.glob(f"{path.name}*") if one.is_file()]
    return sorted(found, key=lambda one: -int(one.suffix[1:]) if one != path else 0)


def rows(*paths: Path) -> list[dict[str, Any]]:
    """Return the rows of files, each of which ends with a whole one."""
    texts = [path.read_text() for path in paths]
    assert all(text.endswith("\n") for text in texts if text)
    return [json.loads(line) for text in texts for line in text.splitlines()]


def write(audit: AuditFile, count: int, first: int = 0) -> None:
    """Write rows, and wait until they are written."""
    wanted = audit.rows + count
    for partition in range(first, first + count):
        audit(Refused(partition=partition))
    eventually(lambda: audit.rows == wanted)


def test_a_full_file_is_renamed_and_no_row_is_lost(
    started: Callable[..., AuditFile], path: Path
) -> None:
    audit = started(path)
    write(audit, 1_000)
    found = files(path)
    assert len(found) > 5
    assert [row["partition"] for row in rows(*found)] == list(range(1_000))
    assert all(one.stat().st_size <= SIZE for one in found)
    assert audit.rotations == len(found) - 1
    assert audit.deleted_bytes == audit.failures == audit.dropped == 0


def test_the_oldest_file_makes_place_and_its_bytes_are_counted(
    started: Callable[..., AuditFile], path: Path
) -> None:
    audit = started(path, max_files=3)
    write(audit, 1_000)
    found = files(path)
    assert [one.name for one in found] == ["refused.jsonl.2", "refused.jsonl.1", "refused.jsonl"]
    kept = [row["partition"] for row in rows(*found)]
    assert kept == list(range(kept[0], 1_000))
    size = sum(one.stat().st_size for one in found)
    assert size <= 3 * SIZE
    written = sum(len(json.dumps(row)) + 1 for row in rows(path))
    assert written == path.stat().st_size
    values = {family.name: next(iter(family.samples))[1] for family in audit.families()}
    assert values["audit_file_rotations"] == audit.rotations > 3
    assert (
        values["audit_file_deleted_bytes"]
        == audit.deleted_bytes
        >= (audit.rotations - 2) * (SIZE // 2)
    )


@pytest.mark.long
def test_processes_that_write_one_file_rotate_it_together(path: Path) -> None:
    # The one whose row does not fit renames; the others open the new file.
    count, writers = 1_500, 3
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n), str(count)])
        for n in range(writers)
    ]
    assert [one.wait(60) for one in processes] == [0] * writers
    found = files(path)
    for n in range(writers):
        mine = [row["batches"] for row in rows(*found) if row["partition"] == n]
        assert mine == list(range(count))
    assert all(one.stat().st_size <= SIZE for one in found)


def test_others_may_fill_each_new_file_first(
    started: Callable[..., AuditFile], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = started(path, max_files=20)
    write(audit, 1)
    left, opened = 10, AuditFile._open

    def fill() -> None:
        with open(path, "ab") as other:
            other.write(b"{}\n" * (SIZE // 3))

    def open_filled(self: AuditFile) -> None:
        nonlocal left
        opened(self)
        if left:
            left -= 1
            fill()

    fill()
    monkeypatch.setattr(AuditFile, "_open", open_filled)
    write(audit, 1, 1)
    assert left == audit.failures == 0
    assert audit.rotations == 11
    assert [row["partition"] for row in rows(path)] == [1]


def test_a_row_that_waited_for_the_lock_goes_to_the_new_file(
    started: Callable[..., AuditFile], path: Path
) -> None:
    audit = started(path)
    write(audit, 1)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # another process is about to rename the file
        audit(Refused(partition=1))
        eventually(lambda: bool(audit._piece))
        path.rename(numbered(path, 1))
    eventually(lambda: audit.rows == 2)
    assert [row["partition"] for row in rows(numbered(path, 1))] == [0]
    assert [row["partition"] for row in rows(path)] == [1]


def test_a_file_that_cannot_be_renamed_stays_bounded_and_its_rows_wait(
    started: Callable[..., AuditFile],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def unable(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(audit_file.os, "rename", unable)
    audit = started(path)
    for partition in range(1_000):
        audit(Refused(partition=partition))
    eventually(lambda: audit.failures >= 3)
    assert path.stat().st_size <= SIZE
    assert [record.getMessage() for record in caplog.records] == [
        f"log.audit_file {path} cannot be written: it is full (log.audit_max_bytes) and cannot be "
        "renamed: Permission denied"
    ]
    monkeypatch.undo()
    eventually(lambda: audit.rows == 1_000)
    assert [row["partition"] for row in rows(*files(path))] == list(range(1_000))
    assert audit.dropped == 0


def test_a_full_file_that_was_emptied_is_written_again(
    started: Callable[..., AuditFile], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # logrotate's copytruncate, where this user may not rename files.
    monkeypatch.setattr(audit_file, "numbered", lambda path, number: path / "no" / str(number))
    audit = started(path)
    for partition in range(150):
        audit(Refused(partition=partition))
    eventually(lambda: audit.failures)
    first = rows(path)
    os.truncate(path, 0)
    eventually(lambda: audit.rows == 150)
    assert [row["partition"] for row in first + rows(path)] == list(range(150))


def test_logrotate_and_the_gate_may_rename_one_after_the_other(
    started: Callable[..., AuditFile], path: Path
) -> None:
    audit = started(path)
    write(audit, 60)
    os.rename(path, numbered(path, 1))  # logrotate, which makes the new file, too
    path.touch(mode=0o640)
    write(audit, 150, 60)
    assert [row["partition"] for row in rows(*files(path))] == list(range(210))
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_mode_of_the_one_before(
    started: Callable[..., AuditFile], path: Path
) -> None:
    audit = started(path)
    path.chmod(0o640)
    write(audit, 200)
    assert audit.rotations
    assert {one.stat().st_mode & 0o777 for one in files(path)} == {0o640}
    path.rename(path.with_name("aside"))
    write(audit, 1)
    assert path.stat().st_mode & 0o777 == 0o640


def test_groups_of_others_get_no_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    path.touch(mode=0o600)
    before = list(os.stat(path))
    before[0] = 0o100664
    before[5] += 1  # another group
    monkeypatch.setattr(audit_file.os, "fchown", unable)
    with open(path, "ab") as file:
        audit_file._share_as(os.stat_result(before), file.fileno())
    assert path.stat().st_mode & 0o777 == 0o604


def test_what_a_symbolic_link_leads_to_is_renamed(
    started: Callable[..., AuditFile], path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    path.symlink_to("disk/here.jsonl")
    audit = started(path)
    write(audit, 200)
    assert path.is_symlink()
    assert rotated_path(path) == folder.resolve() / "here.jsonl"
    assert [row["partition"] for row in rows(*files(folder / "here.jsonl"))] == list(range(200))
    assert list(tmp_path.glob("refused*")) == [path]


def test_a_loop_of_symbolic_links_is_not_renamed(path: Path) -> None:
    path.symlink_to(path)
    assert rotated_path(path) is None


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_file_of_standard_output_is_not_renamed(
    started: Callable[..., AuditFile], tmp_path: Path, folder: str
) -> None:
    # /dev/stdout leads there: the file belongs to the program that redirected it.
    with open(tmp_path / "output", "ab") as output:
        path = Path(folder, str(output.fileno()))
        assert rotated_path(path) is None
        audit = started(path)
        write(audit, 200)
        assert len(rows(tmp_path / "output")) == 200
    assert [one.name for one in tmp_path.iterdir()] == ["output"]
    assert rotated_path(Path("/dev/stdout")) is None


def test_a_pipe_is_not_renamed(started: Callable[..., AuditFile], tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = started(path, 1)
    write(audit, 100)
    os.close(reader)
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_row_stays_in_its_file(
    started: Callable[..., AuditFile], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The disk is full, and half of the row cannot be cut off. The rest goes to the same file.
    is_full, written = [True], os.write

    def full(descriptor: int, data: bytes) -> int:
        if not is_full:
            return written(descriptor, data)
        if data.startswith(b'{"time_ms"'):
            return written(descriptor, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def unable(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    audit = started(path, None)
    write(audit, 5)
    monkeypatch.setattr(audit_file.os, "write", full)
    monkeypatch.setattr(audit_file.os, "ftruncate", unable)
    audit(Refused(partition=5))
    eventually(lambda: audit.failures)
    audit.follow(bounds(path.stat().st_size, 3))
    is_full.clear()
    eventually(lambda: audit.rows == 6)
    write(audit, 1, 6)
    assert [row["partition"] for row in rows(numbered(path, 1))] == list(range(6))
    assert [row["partition"] for row in rows(path)] == [6]


def test_other_bounds_take_effect_at_once(started: Callable[..., AuditFile], path: Path) -> None:
    audit = started(path, None)
    write(audit, 1_000)
    assert files(path) == [path]
    audit.follow(bounds(SIZE, 100))
    write(audit, 1_000, 1_000)
    assert len(files(path)) > 5
    audit.follow(bounds(SIZE, 3))
    eventually(lambda: len(files(path)) == 3)
    assert audit.deleted_bytes
    assert rows(path)[-1]["partition"] == 1_999
    write(audit, 1_000, 2_000)
    assert len(files(path)) == 3


def test_the_least_bound_takes_the_longest_rows() -> None:
    kinds = Log.model_json_schema()["properties"]["audit_max_bytes"]["anyOf"]
    least = next(one["minimum"] for one in kinds if "minimum" in one)
    audit = AuditFile(Path("unused"))
    text = "\U0001f600" * 40_000
    audit(Refused(client_id=text, topic=text, reason=text, principal=text, batches=1 << 62))
    assert len(json.dumps(audit._queue[0])) * audit_file._ROWS_A_PIECE < least


def settings(path: Path, **log: Any) -> dict[str, Any]:
    return {
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:1"},
        "metrics": {"address": None},
        "log": {"audit_file": str(path), **log},
    }


async def test_a_reload_changes_the_bounds(path: Path) -> None:
    gate = Gate(settings_from(settings(path)))
    audit = gate.audit_file
    assert audit is not None
    assert (audit._max_bytes, audit._max_files) == (104_857_600, 10)
    changed = settings_from(settings(path, audit_max_bytes=2 << 20, audit_max_files=3))
    (await gate.prepare(changed)).apply()
    assert (audit._max_bytes, audit._max_files) == (2 << 20, 3)


def warnings(path: Path, **log: Any) -> list[str]:
    return [fault.text for fault in file_warnings(settings_from(settings(path, **log)))]


def test_a_file_that_could_not_be_renamed_is_a_warning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert warnings(path) == []
    os.mkfifo(tmp_path / "pipe")
    access = os.access

    def unable(path: Any, mode: int) -> bool:
        return Path(path) != tmp_path.resolve() and access(path, mode)

    monkeypatch.setattr(os, "access", unable)
    (text,) = warnings(path)
    assert text.startswith(f"{path}: this user may not rename files in {tmp_path.resolve()}: at ")
    assert text.endswith("set log.audit_max_bytes: null")
    assert warnings(path, audit_max_bytes=None) == []
    assert warnings(tmp_path / "pipe") == warnings(Path("/dev/stdout")) == []
    monkeypatch.undo()
    path.touch()
    monkeypatch.setattr(
        Path, "read_text", lambda *_: f"36 35 8:1 /a {path.resolve()} rw - ext4 x\n"
    )
    (text,) = warnings(path)
    assert "is a mount, which cannot be renamed" in text


def test_files_above_the_number_are_a_warning(path: Path) -> None:
    numbered(path, 9).touch()
    assert warnings(path) == []
    (text,) = warnings(path, audit_max_files=9)
    assert text == f"{path}.9: is not deleted by the gate: log.audit_max_files is 9"
