"""``python tests/evidence/hostile/sanitizers.py``: the core suite under AddressSanitizer and
UndefinedBehaviorSanitizer.

Each sanitizer has a copy of the tree below ``--folder``, built with BATCHVAL_BUILD=asan or ubsan.
Its runs: fixtures' cases, the kept inputs, tests/unit/core, and every fuzz target for
``--seconds`` each (with ``--target`` no more than those targets). Buffers are exact-size
(malloc'ed, PYTHONMALLOC=malloc: red zones on both sides). Leaks are test_leaks.py's matter:
LeakSanitizer takes whatever CPython's collector has on its lists for reachable. Ends with 1 if
anything was found, and a log says where.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.evidence.hostile.covered import COVERED

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("asan", "ubsan")
TARGETS = tuple(COVERED)
_PARTS = ("batchval", "tests", "fixtures", "setup.py", "pyproject.toml", "README.md")
_REPORT = re.compile(r"ERROR: AddressSanitizer|runtime error:|SUMMARY: \w*Sanitizer")
# these measure memory or time, or die on purpose
_APART = " and ".join(
    f"not {word}"
    for word in (
        "four_times",
        "a_millisecond",
        "bounds_memory",
        "buy_no_memory",
        "packages_provider",
        "ones_before_it",
        "over_read",
        "leak",
        "nothing_is_left",
    )
)


def _runtime(kind: str) -> str:
    compiler = os.environ.get("CC", "cc").split()
    name = f"lib{kind}.so"
    found = subprocess.run(
        [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = found.stdout.strip()
    if path == name:
        raise SystemExit(f"sanitizers: {compiler[0]} has no {name}")
    return path


def _environment(kind: str) -> dict[str, str]:
    return {
        **os.environ,
        "BATCHVAL_BUILD": kind,
        "PYTHONMALLOC": "malloc",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": _runtime(kind),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _copy(folder: Path) -> None:
    """Copy the tree's sources; earlier builds stay, and are renewed where a source is newer."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
    generated = {path.with_suffix(".c") for path in (ROOT / "batchval").rglob("*.pyx")}

    def ignore(where: str, names: list[str]) -> set[str]:
        return skipped(where, names) | {name for name in names if Path(where) / name in generated}

    for part in _PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True, ignore=ignore)
        else:
            shutil.copy2(ROOT / part, folder / part)


def _run(kind: str, folder: Path, name: str, arguments: list[str], log: Path) -> bool:
    started = time.monotonic()
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"\n==== {kind}: {name}: python {' '.join(arguments)}\n")
        lines.flush()
        at = lines.tell()
        code = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=_environment(kind),
            stdout=lines,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    with log.open(encoding="utf-8") as lines:
        lines.seek(at)
        reports = len(_REPORT.findall(lines.read()))
    good = code == 0 and not reports
    words = "clean" if good else f"ends with {code}, {reports} reports: see {log}"
    print(f"{kind}: {name}: {words} ({time.monotonic() - started:.0f} s)", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each fuzz target")
    parser.add_argument(
        "--target",
        action="append",
        choices=TARGETS,
        help="again for each: these fuzz targets alone",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sanitizers")
    arguments = parser.parse_args()
    bad = runs = 0
    for kind in arguments.kind or KINDS:
        folder, log = arguments.folder.resolve() / kind, arguments.folder.resolve() / f"{kind}.log"
        _copy(folder)
        log.write_text("")
        with log.open("a") as lines:
            built = subprocess.run(
                [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
                cwd=folder,
                env={**os.environ, "BATCHVAL_BUILD": kind},
                stdout=lines,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if built:
            print(f"{kind}: does not build: see {log}")
            return 1
        # what a sanitizer writes before it ends the process goes to the log, not to the test
        pytest = ["-m", "pytest", "-q", "-x", "--capture=sys", "-p", "no:cacheprovider"]
        fuzz = [
            "tests/evidence/hostile/fuzz.py",
            "--seconds",
            str(arguments.seconds),
            "--seed",
            str(arguments.seed),
            "--jobs",
            "1",
        ]
        suite = [
            (
                "cases",
                [
                    "-m",
                    "batchval",
                    "conformance",
                    "fixtures/golden",
                    "fixtures/hostile/batches.jsonl",
                ],
            ),
            ("tests/evidence/hostile", [*pytest, "tests/evidence/hostile", "-k", _APART]),
            ("tests/unit/core", [*pytest, "tests/unit/core"]),
            *((f"target {name}", [*fuzz, "--target", name]) for name in TARGETS),
        ]
        if arguments.target:
            suite = [(f"target {name}", [*fuzz, "--target", name]) for name in arguments.target]
        for name, command in suite:
            runs += 1
            bad += not _run(kind, folder, name, command, log)
    print(f"sanitizers: {bad} of {runs} runs found something")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
