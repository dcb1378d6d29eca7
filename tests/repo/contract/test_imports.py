"""Check the rules of the architecture: every import runs down, no modules of a package import each
other in a circle, native code knows bytes, never sockets or files, and a folder holds few files.

import-linter reads .py files (``make check``); this reads .pyx, .pxd and own C too, which it
cannot. The floors are those of pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.sources import PACKAGE, ROOT, externs, files, imports

_CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
_CONTRACTS = {c["id"]: c["layers"] for c in _CONFIG["tool"]["importlinter"]["contracts"]}


def _heights(layers: list[str]) -> dict[str, int]:
    return {
        name.strip(" ()"): len(layers) - n
        for n, layer in enumerate(layers)
        for name in layer.split("|")
    }


FLOORS = _heights(_CONTRACTS["floors"])
#: {package: {folder or module in it: its height}}
FOLDERS = {
    "proxy": _heights(_CONTRACTS["gate"]),
    "core": _heights(_CONTRACTS["engine"]),
    "protocol": _heights(_CONTRACTS["protocol"]),
}

#: down, and still not allowed: the core validates batches from any sender, the network carries
#: bytes whatever they are
STRANGERS = {
    ("core", "protocol"),
    ("network", "policy"),
    ("network", "compression"),
    ("network", "rules"),
}

#: A reader must find a file among its neighbours.
MAX_FILES = 30

#: what native code may ask of Python; only WITH_A_CLOCK may ask for a clock
PYTHON = {"__future__", "collections", "enum", "functools", "re", "struct", "typing"}
PYTHON |= {"cython", "numpy", "pyarrow"}
CLOCKS = {"time", "libc.time", "cpython.time", "datetime", "cpython.datetime", "posix.time"}
#: They measure how long requests take. ON_SOCKETS has a clock in C, for deadlines.
WITH_A_CLOCK = {"perf/histogram", "proxy/watch/request_latency"}
LIBC = {"libc.stddef", "libc.stdint", "libc.string", "libc.limits", "libc.stdlib"}
LIBC_STDLIB = {"malloc", "calloc", "realloc", "free", "abs", "qsort", "bsearch"}
HEADERS = {"stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h"}
# crc_primitives.h: intrinsics, and which of them the processor has, on Linux and on macOS
HEADERS |= {"immintrin.h", "nmmintrin.h", "wmmintrin.h", "cpuid.h"}
HEADERS |= {"arm_acle.h", "arm_neon.h", "sys/auxv.h", "sys/sysctl.h"}
# anonymous memory for the arena: mapping a file would need a descriptor, which nothing here has
HEADERS |= {"sys/mman.h"}
# frame_memory.pyx: a thread that ends after it has released a block, and that takes no signal
HEADERS |= {"pthread.h", "signal.h"}
#: The modules that make system calls on sockets that Python has connected, and what they include for
#: that (docs/adr/0015, 0020): Python between two reads was most of what a consumer cost, and of what
#: the gate cost beside validation.
ON_SOCKETS = {
    "fetch/receive_loop": {"errno.h", "poll.h", "sys/socket.h", "time.h", "unistd.h"},
    "proxy/session/socket_transport": {"errno.h", "sys/socket.h", "sys/uio.h"},
}
_WORDS = re.compile(
    r"\b(open|print|input|exec|eval|fopen|fdopen|fprintf|printf|FILE|getenv|system|socket|popen)\s*[(*]"
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def upward(package: Path) -> Iterator[str]:
    """Yield each import that does not go down to a lower layer, or to a lower folder in a package
    whose folders have an order, and each cimport of the gate that core/gate.pxd does not list.
    """
    for path in files(package, ".py", ".pyx", ".pxd", ".pyi"):
        here = path.relative_to(package).with_suffix("").parts
        if here[0] == "__init__":
            continue  # the package's face shows names of all floors, and loads them when asked (test_public_names)
        for found in imports(path, package):
            root, *there = found.whole.split(".")
            if root != package.name:
                continue
            for fault in _faults(here, [*there, "", ""], found.native):
                yield f"{path.relative_to(package)}:{found.line}: {found.whole}: {fault}"


def _faults(here: Sequence[str], there: Sequence[str], native: bool) -> Iterator[str]:
    if there[0] == "" or there[0].startswith("__"):
        if here[0] != "cli":
            yield "the package's face is for users"
        return
    yield from _climb("package", here[0], there[0], FLOORS)
    if native and (here[0], there[0]) == ("proxy", "core") and there[1] != "gate":
        yield "proxy cimports core/gate.pxd alone"
    if (here[0], there[0]) in STRANGERS:
        yield f"{here[0]} must not import {there[0]}"
    if here[0] == there[0] in FOLDERS and here[1] != "__init__":
        yield from _climb("folder", here[1], there[1], FOLDERS[here[0]])


def _climb(kind: str, importer: str, target: str, heights: Mapping[str, int]) -> Iterator[str]:
    if importer not in heights or target not in heights:
        yield f"a {kind} that has no layer in pyproject.toml"
    elif target != importer and heights[target] >= heights[importer]:
        yield f"{importer} must not import {target}"


def circles(package: Path) -> Iterator[tuple[str, ...]]:
    """Yield each set of modules of one package that import each other in a circle, directly or
    through others, at run time, for types or by cimport.
    """
    paths = files(package, ".py", ".pyx", ".pxd")
    modules = {path: _module(path, package) for path in paths}
    known, below = set(modules.values()), defaultdict[str, set[str]](set)
    for path, here in modules.items():
        for found in imports(path, package):
            for name in (found.whole, found.module):
                there = name.removeprefix(f"{package.name}.")
                if there in known:  # else a name in a module
                    if there != here and there.split(".")[0] == here.split(".")[0]:
                        below[here].add(there)
                    break
    reached = {name: _reached(name, below) for name in known}
    yield from sorted(
        {
            tuple(sorted(other for other in reached[name] if name in reached[other]))
            for name in known
            if name in reached[name]
        }
    )


def _module(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")


def _reached(start: str, below: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that imports lead to; the start itself only if it is one of them."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = below.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached


def reaching_out(package: Path) -> Iterator[str]:
    """Yield each use that native code makes of anything outside its bytes."""
    for path in files(package, ".pyx", ".pxd"):
        where = path.relative_to(package)
        allowed = PYTHON | (CLOCKS if where.with_suffix("").as_posix() in WITH_A_CLOCK else set())
        for found in imports(path, package):
            top = found.module.split(".")[0]
            if top == package.name or found.module in allowed or top in allowed:
                continue
            if top == "cpython" and found.whole not in CLOCKS and found.module not in CLOCKS:
                continue
            whole = found.whole if found.whole in LIBC else found.module
            if whole in LIBC and (whole != "libc.stdlib" or found.name in LIBC_STDLIB):
                continue
            yield f"{where}:{found.line}: {found.whole}"
        own = own_headers(package, path)
        taken = [
            *externs(path),
            *((0, header) for header in _INCLUDE.findall(path.read_text("utf-8"))),
        ]
        known = HEADERS | own | ON_SOCKETS.get(where.with_suffix("").as_posix(), set()) | {"*"}
        yield from (f"{where}:{n}: {header}" for n, header in taken if header not in known)
        for n, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if word := _WORDS.search(line.split("#", 1)[0]):
                yield f"{where}:{n}: {word[1]}"
    for path in own_c(package):
        where = path.relative_to(package)
        text = _C_COMMENT.sub("", path.read_text("utf-8"))
        own = own_headers(package, path)
        yield from (
            f"{where}: {header}" for header in _INCLUDE.findall(text) if header not in HEADERS | own
        )
        yield from (f"{where}: {word[1]}" for word in _WORDS.finditer(text))


def own_headers(package: Path, path: Path) -> set[str]:
    """Return the package's headers as a file may include them: by name from its folder, or by
    folder and name from those next to it. C that includes a .pxd of another folder needs the latter.
    """
    headers = files(package, ".h")
    return {
        *(header.name for header in headers if header.parent == path.parent),
        *(
            f"../{header.parent.name}/{header.name}"
            for header in headers
            if header.parent.parent == path.parent.parent
        ),
    }


def own_c(package: Path) -> list[Path]:
    """Return hand-written C files; Cython's output has its .pyx next to it."""
    return [path for path in files(package, ".c", ".h") if not path.with_suffix(".pyx").exists()]


def test_every_import_runs_down() -> None:
    assert list(upward(PACKAGE)) == []


def test_no_circle_inside_a_package() -> None:
    assert list(circles(PACKAGE)) == []


def full_folders(package: Path) -> Iterator[str]:
    """Yield each folder with more than MAX_FILES files that somebody wrote or generated there."""
    written = [*files(package, ".py", ".pyx", ".pxd", ".pyi"), *own_c(package)]
    for folder, count in Counter(path.parent for path in written).items():
        if count > MAX_FILES:
            yield folder.relative_to(package).as_posix()


def test_a_folder_of_the_package_holds_at_most_30_files() -> None:
    assert list(full_folders(PACKAGE)) == []


def test_native_code_knows_bytes_alone() -> None:
    assert list(reaching_out(PACKAGE)) == []


#: a file, its text, and what is found in it
PLANTED = [
    ("core/format/a.pyx", "def f():\n    from batchval.cli import main", "must not import cli"),
    ("core/format/a.pyx", "cimport batchval.core.format.b; cimport batchval.cli.x", "import cli"),
    ("core/format/a.pyx", "from batchval import (\n    cli,\n    rules)", "must not import cli"),
    ("core/format/a.pyx", "from batchval.protocol.frame cimport read", "must not import protocol"),
    ("core/format/a.py", "from batchval.helpers import x", "a package that has no layer"),
    ("core/format/a.pxd", "from ..stages.a cimport x", "format must not import stages"),
    ("errors.py", "import batchval", "the package's face is for users"),
    ("proxy/kit/a.pyx", "from batchval.core.format.bytes cimport be32", "core/gate.pxd alone"),
    ("proxy/watch/a.py", "from batchval.proxy.gate import x", "a folder that has no layer"),
    ("core/a.pyx", "import socket, io", "socket"),
    ("core/a.pxd", "from libc cimport stdio", "libc.stdio"),
    ("core/a.pyx", "from libc.stdlib cimport system", "libc.stdlib.system"),
    ("core/a.pyx", "from libc.time cimport time", "libc.time"),
    ("core/a.pyx", "def f():\n    return open('/etc/passwd').read()", "open"),
    ("compression/a.pxd", 'cdef extern from "<stdio.h>":\n    pass', "stdio.h"),
    ("core/a.h", "int f(FILE *to);", "FILE"),
    ("core/codecs/a.c", '#include "../../protocol/b.h"', "protocol/b.h"),
    ("core/a.pyx", '"""Not so:\n\nimport os\n"""\n# import socket\nx = 1', None),
]


@pytest.mark.parametrize(("name", "text", "complaint"), PLANTED)
def test_what_is_planted_is_found(
    name: str, text: str, complaint: str | None, tmp_path: Path
) -> None:
    """The checks read text: one that no longer sees a kind of import would pass for ever."""
    package = tmp_path / "batchval"
    path = package / name
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    found = [*upward(package), *reaching_out(package)]
    assert any(complaint in one for one in found) if complaint else found == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "batchval" / "core"
    package.mkdir(parents=True)
    (package / "a.pyx").write_text("from batchval.core.b cimport x\n")
    (package / "b.pxd").write_text("cdef class A:\n    cdef int x\n")
    (package / "b.pyx").write_text("def f():\n    from batchval.core.c import y\n")
    (package / "c.py").write_text("if TYPE_CHECKING:\n    from . import a\n")
    assert list(circles(package.parent)) == [("core.a", "core.b", "core.c")]
    (package / "c.py").write_text("")
    assert list(circles(package.parent)) == []
