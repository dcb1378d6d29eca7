"""tools/hardening.py: a module that has every property, and one for each that it lacks."""

from __future__ import annotations

import os
import platform
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools import hardening

SOURCE = """
#include <stdio.h>
#include <string.h>
void nowhere(void);
{before}
__attribute__((visibility("default"))) int PyInit_small(const char *from, unsigned long n) {{
    char to[64], text[80];
    memcpy(to, from, n);
    snprintf(text, n, {pattern}, (int)n, to);
#ifdef MISSING
    nowhere();
#endif
    return text[3];
}}
"""
BRANCHES = "-fcf-protection={}" if platform.machine() == "x86_64" else "-mbranch-protection={}"
ON = "full" if platform.machine() == "x86_64" else "standard"


def module(
    folder: Path, *flags: str, before: str = "", pattern: str = '"%d%s"', strip: bool = True
) -> bytes:
    """Compile a module as setup.py does, but for some flags; later flags win."""
    source = folder / "small.c"
    source.write_text(SOURCE.format(before=before, pattern=pattern))
    compiler = os.environ.get("CC", "cc").split()
    words = f"""-shared -fPIC -O3 -g0 -fvisibility=hidden -nostartfiles -fno-plt
        -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 {BRANCHES.format(ON)}
        -Wl,-z,relro,-z,now,-z,noexecstack""".split()
    command = [*compiler, *words, *["-s"] * strip, *flags, "-o", "small.so", source.name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "small.so").read_bytes()


def test_a_hardened_module(tmp_path: Path) -> None:
    assert list(hardening.faults("small.so", module(tmp_path), ["/home/somebody"])) == []


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["-Wl,-z,lazy"], "no BIND_NOW"),
        (["-Wl,-z,norelro"], "no RELRO"),
        (["-Wl,-z,execstack"], "its stack is executable"),
        (["-Wl,-rpath,/opt/python/lib"], "RUNPATH /opt/python/lib"),
        ([BRANCHES.format("none")], "not marked for "),
        (["-fno-stack-protector"], "no stack protector"),
        (["-D_FORTIFY_SOURCE=0"], "calls without _FORTIFY_SOURCE: snprintf"),
        (["-fvisibility=default"], "it exports PyInit_small, other: only PyInit_small is wanted"),
        (["-Wl,--no-as-needed", "-lm"], "it needs the library libm.so.6"),
        (["-DMISSING"], "no library that it needs has nowhere"),
    ],
)
def test_a_property_that_is_lacking(flags: list[str], fault: str, tmp_path: Path) -> None:
    data = module(tmp_path, *flags, before="int other;")
    (found,) = hardening.faults("small.so", data)
    assert found.startswith(fault)


def test_symbols_and_paths(tmp_path: Path) -> None:
    data = module(tmp_path, "-g", pattern='"/home/somebody %d%s"', strip=False)
    found = list(hardening.faults("small.so", data, ["/home/somebody"]))
    assert "it holds the path /home/somebody" in found
    assert any(one.startswith("it is not stripped: it has a section .debug") for one in found)


def test_a_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, empty = (tmp_path / f"{name}.whl" for name in ("good", "bad", "empty"))
    for path, flags in ((good, []), (bad, ["-Wl,-z,lazy"])):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("package/small.so", module(tmp_path, *flags))
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("package/__init__.py", "")
    assert hardening.main([str(good)]) == 0
    assert hardening.main([str(good), str(bad)]) == 1
    assert "bad.whl: package/small.so: no BIND_NOW" in capsys.readouterr().out
    assert hardening.check(empty) == (0, ["empty.whl: it has no extension module"])
