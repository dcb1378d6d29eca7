"""Try the package on ARM64 under qemu-user: make test-arm.

    python -m tools.arm                  make the machine, run all checks, print a table
    python -m tools.arm --only count     one check (may be repeated): see CHECKS
    python -m tools.arm --count          the same as --only count
    python -m tools.arm --wheel FILE     modules of an aarch64 wheel for CPython 3.11
    python -m tools.arm --shell ...      run the ARM64 Python with these arguments

As root on Debian (x86-64) it installs qemu and a cross compiler; otherwise it prints in one line
what is missing. tools/arm_machine.py makes the machine, in build/arm, and keeps it.
Without --wheel, a wheel in dist/wheels is taken if it is newer than all sources of the modules;
otherwise they are compiled.

Checks:
    version      batchval --version names the kernel armv8
    conformance  fixtures/golden and fixtures/corpus: all answers are Kafka's
    no-pmull     the kernel tests on a processor with crc32 and without PMULL (Raspberry Pi 4)
    no-crc32     the kernel tests on a processor without both: the table
    core         tests/core
    count        instructions a byte of the table kernel and of armv8, counted by qemu: at most 1/8

Tests that are marked alone, jvm or slow are left out: they measure time or memory, or need a JDK.
So are those in LEFT_OUT.

Exit codes: 0, 1 a check failed, 2 something is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.arm_machine import ARM, GCC, PYTHON, QEMU, ROOT, TREE, Missing, prepare, run

#: tests of tests/core that qemu-user cannot run, and why
LEFT_OUT: dict[str, str] = {}
#: bits of AT_HWCAP: https://docs.kernel.org/arch/arm64/elf_hwcaps.html
HWCAP_PMULL, HWCAP_CRC32 = 1 << 4, 1 << 7
COUNTED_BYTES = 1 << 20
LEAST_GAIN = 8  # times fewer instructions than the table
TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not alone and not jvm and not slow")


class Outcome(NamedTuple):
    """The result of a check, as the table shows it."""

    passed: bool
    text: str


def python(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the ARM64 Python in the copied tree and return what it printed. Its stderr is shown.

    What it has printed so far is in build/arm/output.
    """
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "BATCHVAL_NO_SKIPS": "1",
        **(env or {}),
    }
    command = [str(PYTHON), *arguments]
    output = ARM / "output"
    with output.open("wb") as file:
        done = subprocess.run(command, cwd=TREE, env=environment, stdout=file, check=False)
    text = output.read_text("utf-8", "replace")
    return subprocess.CompletedProcess(command, done.returncode, text)


def version() -> Outcome:
    """Check that the CPU's instructions were chosen."""
    done = python("-m", "batchval", "--version")
    line = next((one for one in done.stdout.splitlines() if "kernel" in one), done.stdout)
    return Outcome(
        done.returncode == 0 and "kernel: armv8 (" in line and "aarch64" in done.stdout, line
    )


def conformance() -> Outcome:
    """Hold the answers against Kafka's."""
    done = python("-m", "batchval", "conformance", "fixtures/golden", "fixtures/corpus")
    last = done.stdout.splitlines()[-1:] or ["no output"]
    if done.returncode:
        print(done.stdout)
    return Outcome(done.returncode == 0, last[0].removeprefix("conformance: "))


def _pytest(*arguments: str, env: dict[str, str] | None = None) -> Outcome:
    done = python(*TESTS, *arguments, env=env)
    last = done.stdout.splitlines()[-1:] or ["no output"]
    if done.returncode:
        print(done.stdout[-20_000:])
    return Outcome(done.returncode == 0, re.sub(r"^=+ | =+$| in [\d.]+s.*$", "", last[0]))


def _kernels_without(hidden: int, chosen: str) -> Outcome:
    """Run the kernel tests while getauxval hides capabilities of the processor."""
    library = ARM / "hwcap.so"
    run(GCC, "-O1", "-shared", "-fPIC", "-o", library, ROOT / "tools" / "arm_hwcap.c")
    env = {"QEMU_SET_ENV": f"LD_PRELOAD={library}", "BATCHVAL_HIDDEN_HWCAP": hex(hidden)}
    found = python(
        "-c", "from batchval.core import crc32c; print(crc32c.kernel())", env=env
    ).stdout.strip()
    if found != chosen:
        return Outcome(False, f"the kernel is {found!r}; expected {chosen!r}")
    tested = _pytest("-n", "0", "tests/core/test_crc32c.py", env=env)
    return Outcome(tested.passed, f"kernel {found}: {tested.text}")


def no_pmull() -> Outcome:
    """Try the kernel of processors that have crc32 alone."""
    return _kernels_without(HWCAP_PMULL, "armv8-crc")


def no_crc32() -> Outcome:
    """Try the table, which processors without crc32 use."""
    return _kernels_without(HWCAP_PMULL | HWCAP_CRC32, "table")


def core() -> Outcome:
    """Run the core's tests, on two processors."""
    left_out = [part for name in LEFT_OUT for part in ("--deselect", name)]
    return _pytest("-n", "2", *left_out, "tests/core")


def _executed(program: Path, kernel: str, times: int) -> int:
    """Return how many instructions a run executes: qemu logs each, as a block of its own."""
    command = [
        QEMU,
        "-singlestep",
        "-d",
        "exec,nochain",
        str(program),
        kernel,
        str(COUNTED_BYTES),
        str(times),
    ]
    lines = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        while part := running.stderr.read(1 << 20):
            lines += part.count(b"\n")
    if running.returncode:
        raise Missing(f"{program.name} {kernel}: exit status {running.returncode}")
    return lines


def count() -> Outcome:
    """Count instructions a byte: what one pass over 1 MiB adds to a run without one."""
    program, kernels = ARM / "count", ROOT / "batchval" / "core"
    flags = (
        "-O3",
        "-static",
        "-fno-semantic-interposition",
        "-fstack-protector-strong",
        f"-I{kernels}",
    )
    run(GCC, *flags, "-o", program, ROOT / "tools" / "arm_count.c", kernels / "crc_kernels.c")
    found = {}
    for kernel in ("table", "armv8-crc", "armv8"):
        found[kernel] = (
            _executed(program, kernel, 1) - _executed(program, kernel, 0)
        ) / COUNTED_BYTES
    gain = found["table"] / found["armv8"]
    text = ", ".join(f"{kernel} {instructions:.3f}" for kernel, instructions in found.items())
    return Outcome(gain >= LEAST_GAIN, f"{text} a byte; table/armv8 = {gain:.1f}")


CHECKS: dict[str, Callable[[], Outcome]] = {
    "version": version,
    "conformance": conformance,
    "no-pmull": no_pmull,
    "no-crc32": no_crc32,
    "core": core,
    "count": count,
}


def fitting_wheel() -> Path | None:
    """Return a wheel of dist/wheels that is newer than all sources of the modules."""
    folder = ROOT / "batchval"
    sources = [p for suffix in ("pyx", "pxd", "h") for p in folder.rglob(f"*.{suffix}")]
    sources += [ROOT / "setup.py", folder / "core" / "crc_kernels.c", folder / "core" / "inflate.c"]
    newest = max(path.stat().st_mtime for path in sources)
    wheels = (ROOT / "dist" / "wheels").glob("batchval-*-cp311-cp311-manylinux*_aarch64*.whl")
    return next((one for one in sorted(wheels) if one.stat().st_mtime > newest), None)


def main() -> int:
    """Run the checks and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.arm", description="Try the package on ARM64."
    )
    parser.add_argument(
        "--only", action="append", choices=CHECKS, default=[], help="Run this check alone."
    )
    parser.add_argument(
        "--count", action="append_const", dest="only", const="count", help="Count instructions."
    )
    parser.add_argument("--wheel", type=Path, help="Wheel to take the modules from.")
    parser.add_argument("--shell", nargs=argparse.REMAINDER, help="Arguments of the ARM64 Python.")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        source = prepare(arguments.wheel or fitting_wheel())
        if arguments.shell is not None:
            return subprocess.run([str(PYTHON), *arguments.shell], cwd=TREE, check=False).returncode
        rows = [("machine", "", f"modules of {source}", time.monotonic() - began)]
        for name in arguments.only or CHECKS:
            print(f"ARM64: {name}", flush=True)
            start = time.monotonic()
            outcome = CHECKS[name]()
            rows.append(
                (name, "ok" if outcome.passed else "FAILED", outcome.text, time.monotonic() - start)
            )
    except Missing as error:
        print(f"make test-arm: {error}", file=sys.stderr)
        return 2
    for name, verdict, text, seconds in rows:
        print(f"{name:<12} {verdict:<7} {seconds:6.0f} s  {text}")
    for name, why in LEFT_OUT.items():
        print(f"left out: {name}: {why}")
    return int(any(verdict == "FAILED" for _, verdict, _, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
