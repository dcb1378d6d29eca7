"""tools/dist.py and setup.py: what they refuse."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.sources import ROOT
from tools import dist


def sdist(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"batchval-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def wheel(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name.replace("__", "/")), text)
    return path


def test_an_sdist_holds_what_git_has(tmp_path: Path) -> None:
    made = sdist(tmp_path / "a.tar.gz", **{"PKG-INFO": "", "setup.cfg": "", "a.pyx": "", "b.c": ""})
    assert dist.content_faults(made, {"a.pyx", "b.c"}) == []
    assert dist.content_faults(made, {"a.pyx", "c.h"}) == [
        "a.tar.gz lacks c.h: see MANIFEST.in",
        "a.tar.gz holds b.c, which git does not have",
    ]


def test_two_builds_are_compared(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder, text in zip(folders, ("x", "x", "y"), strict=True):
        folder.mkdir()
        wheel(folder / "a.whl", same="1", other=text)
    dist.same(folders[0] / "a.whl", folders[1] / "a.whl")
    with pytest.raises(dist.DistError, match=r"two builds of a\.whl differ \(a\.whl\): other$"):
        dist.same(folders[0] / "a.whl", folders[2] / "a.whl")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("release", "batchval cannot be built: batchval/ holds 0 .pyx files"),
        ("none", "a wheel without its extension modules does not work: BATCHVAL_BUILD is 'none'"),
    ],
)
def test_a_wheel_without_modules_is_refused(kind: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "batchval").mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "batchval/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "setup.py", "--quiet", "bdist_wheel"]
    settings = os.environ | {"BATCHVAL_BUILD": kind}
    ran = subprocess.run(
        command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert message in ran.stderr
    assert not list(tmp_path.rglob("*.whl"))


def test_an_object_is_taken_where_the_source_is_equal(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "other"
    for place in (tree, folder):
        (place / "build").mkdir(parents=True)
    (tree / "a.c").write_text("int a;")
    (tree / "build" / "a.o").write_bytes(b"object")
    words = [sys.executable, "-I", "-S", str(ROOT / "tools" / "kept_objects.py"), str(tree)]
    compiler = ["false", "-O3", "-c", "a.c", "-o", "build/a.o"]

    def compiles(text: str, made: bytes | None) -> None:
        (folder / "a.c").write_text(text)
        ran = subprocess.run([*words, *compiler], cwd=folder, check=False)
        assert (ran.returncode == 0) == (made is not None)
        if made is not None:
            assert (folder / "build" / "a.o").read_bytes() == made

    compiles("int a;", b"object")
    compiles("int b;", None)
    (tree / "a.c").write_text("/* b.pxd\nEND: Cython Metadata */int a;")
    os.utime(tree / "a.c", (0, 0))
    compiles("/* c.pxd\nEND: Cython Metadata */int a;", b"object")
    compiles("/* c.pxd\n\nEND: Cython Metadata */int a;", None)
    (tree / "a.c").write_text("int a;")
    os.utime(tree / "a.c", (2**31 - 9, 2**31 - 9))  # newer than its object
    compiles("int a;", None)
    (tree / "a.c").unlink()
    compiles("int a;", None)
