"""Link a module for musl with zig's lld: the arguments are those of a C compiler's driver.

    python tools/musl_link.py LIBC -shared OBJECT… -o MODULE

LIBC is a shared library with the name of musl's libc (make_libc), which the module will need.
"zig cc" would link its own libc, whose name auditwheel does not know.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def make_libc(folder: Path, zig_target: str, machine: str) -> Path:
    """Link an empty library with the name that musl's libc has on a processor; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    made, source = folder / f"{machine}.so", folder / "empty.c"
    source.write_text("")
    zig = [sys.executable, "-m", "ziglang"]
    compiled = [
        *zig,
        "cc",
        "-target",
        zig_target,
        "-c",
        str(source),
        "-o",
        str(folder / f"{machine}.o"),
    ]
    linked = [
        *zig,
        "ld.lld",
        "-shared",
        "-soname",
        f"libc.musl-{machine}.so.1",
        compiled[-1],
        "-o",
        str(made),
    ]
    for command in (compiled, linked):
        subprocess.run(command, check=True)
    return made


def arguments(driver: list[str]) -> Iterator[str]:
    """Yield the linker's own arguments from those of a driver."""
    for one in driver:
        if one.startswith("-Wl,"):
            yield from one.removeprefix("-Wl,").split(",")
        elif one != "-nostartfiles":
            yield one


def main(libc: str, *driver: str) -> int:
    """Run the linker."""
    command = [sys.executable, "-m", "ziglang", "ld.lld", *arguments(list(driver)), libc]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
