"""``python tests/evidence/hostile/mutants.py --seed 1 --count 60``: are mistakes in the core
noticed?

Makes mutants of the core's source, one small change each: a comparison (< and <=, > and >=, == and
!=), a bound (± 1 dropped), a sign (+ and -, a cast to the other signedness). Which ones follows
from the seed alone. Each is built in a copy of the tree (one module, -O1) and must make the quick
suite fail: golden and hostile cases, a short differential run, then tests/unit/core. Prints one
line a mutant; ``--out`` gets a JSON line each. ``--report`` adds the run to
docs/reports/mutants.md, which explains the survivors.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from bench.pages import reports  # noqa: E402

# the code that parses untrusted bytes; Python bounds entry points and builders
_WALKS = "records legacy codec_streams snappy replay columns analyze assign_offsets batch_records verdict"
FILES = (
    *(f"batchval/core/{name}.pyx" for name in _WALKS.split()),
    "batchval/core/codecs/inflate.c",
)
OWNERS = {"batchval/core/codecs/inflate.c": "batchval/core/codecs/gzip.pyx"}
OWN_C = {"batchval/core/codecs/gzip.pyx": ["batchval/core/codecs/inflate.c"]}
CHANGES = (
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    (" != ", " == "),
    (" + 1", ""),
    (" - 1", ""),
    (" + ", " - "),
    (" - ", " + "),
    ("<uint64_t>", "<int64_t>"),
    ("<uint32_t>", "<int32_t>"),
)
BUILD = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup
path, *own = sys.argv[1:]
name = path.removesuffix(".pyx").replace("/", ".")
extension = Extension(name, [path, *own], extra_compile_args=["-O1", "-w"])
directives = {"boundscheck": False, "wraparound": False, "cdivision": True, "initializedcheck": False}
setup(script_args=["-q", "build_ext", "--inplace"], ext_modules=cythonize(
    [extension], language_level=3, force=True, quiet=True, compiler_directives=directives))
"""
SUITE = (
    ("cases", ["-m", "batchval", "conformance", "fixtures/golden", "fixtures/hostile/batches.jsonl"]),
    ("kept", ["-m", "pytest", "-qx", "-p", "no:cacheprovider",
              "tests/evidence/hostile/test_kept.py", "tests/evidence/hostile/test_fetches.py",
              "tests/evidence/hostile/test_bombs.py", "-k",
              "not small_limit and not default_limit and not at_rest and not buy_no_memory and not holds_the_bytes"]),
    ("differential", ["tests/evidence/hostile/fuzz.py", "--target", "differential",
                      "--seed", "1", "--executions", "6000",
                      "--seconds", "600", "--jobs", "1"]),
    ("streams", ["tests/evidence/hostile/fuzz.py", "--target", "inflate", "--target", "snappy",
                 "--seed", "1", "--executions", "20000", "--seconds", "600", "--jobs", "1"]),
    ("entries", ["tests/evidence/hostile/fuzz.py", "--target", "core_ranges", "--target",
                 "core_entry_points", "--seed", "1",
                 "--executions", "1500", "--seconds", "600", "--jobs", "1"]),
    ("core", ["-m", "pytest", "-qx", "-p", "no:cacheprovider", "tests/unit/core"]),
)  # fmt: skip
TIMEOUT = 300.0


class Mutant(NamedTuple):
    """One change: in the ``line``-th line of ``file`` (from 1) at ``column``, ``old`` becomes
    ``new``.
    """

    file: str
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.old.strip()!r} -> {self.new.strip()!r}"


def _code(text: str, is_c: bool) -> str:
    """Return the text with comments, docstrings and strings blanked, of the same length."""
    pattern = (
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'
        if is_c
        else r'""".*?"""|#[^\n]*|b?"(?:\\.|[^"\\\n])*"'
    )
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", "\x01", m.group()), text, flags=re.DOTALL)


def sites(file: str) -> list[Mutant]:
    """Return every mutation that is possible in a file."""
    is_c = file.endswith(".c")
    found = []
    for number, line in enumerate(_code((ROOT / file).read_text("utf-8"), is_c).splitlines(), 1):
        if re.match(
            r"\s*(cdef (inline |const |extern |enum)|cimport|from |import |def |class |#)", line
        ):
            continue
        for old, new in CHANGES:
            if is_c and old.startswith("<"):
                continue
            for match in re.finditer(re.escape(old) + (r"\b" if old[-1] == "1" else ""), line):
                found.append(Mutant(file, number, match.start(), old, new))
    return found


def chosen(seed: int, count: int) -> list[Mutant]:
    """Choose ``count`` mutants, no two on one line."""
    everywhere = [mutant for file in FILES for mutant in sites(file)]
    rng = random.Random(seed)
    rng.shuffle(everywhere)
    lines: set[tuple[str, int]] = set()
    found = []
    for mutant in everywhere:
        if (mutant.file, mutant.line) not in lines and (
            not mutant.old.startswith("<") or rng.random() < 0.5
        ):
            lines.add((mutant.file, mutant.line))
            found.append(mutant)
        if len(found) == count:
            break
    return found


class Copy:
    """A tree of its own, in which one mutant at a time is built and asked."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in ("batchval", "tests", "fixtures", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        (folder / "build.py").write_text(BUILD)

    def _run(self, arguments: list[str]) -> subprocess.CompletedProcess[str] | None:
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            return subprocess.run(
                [sys.executable, *arguments], cwd=self.root, env=environment, capture_output=True, text=True,
                timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None

    def build(self, file: str) -> bool:
        owner = OWNERS.get(file, file)
        done = self._run(["build.py", owner, *OWN_C.get(owner, [])])
        return done is not None and done.returncode == 0

    def verdict(self) -> str:
        """Return which tests noticed the mutant, and how; empty if none did."""
        for name, arguments in SUITE:
            done = self._run(arguments)
            if done is None:
                return f"{name}: does not end"
            if done.returncode:
                return f"{name}: signal {-done.returncode}" if done.returncode < 0 else name
        return ""

    def judge(self, mutant: Mutant) -> dict[str, object]:
        path = self.root / mutant.file
        original = path.read_text("utf-8")
        lines = original.split("\n")
        line = lines[mutant.line - 1]
        end = mutant.column + len(mutant.old)
        assert line[mutant.column : end] == mutant.old
        lines[mutant.line - 1] = line[: mutant.column] + mutant.new + line[end:]
        module = (self.root / OWNERS.get(mutant.file, mutant.file)).with_suffix("")
        (built,) = module.parent.glob(f"{module.name}.*.so")
        kept = built.read_bytes()
        started = time.monotonic()
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            by = self.verdict() if self.build(mutant.file) else "compiler"
        finally:
            path.write_text(original, encoding="utf-8")
            built.unlink(missing_ok=True)
            built.write_bytes(kept)
        return {
            **mutant._asdict(),
            "source": line.strip(),
            "killed_by": by,
            "seconds": round(time.monotonic() - started, 1),
        }


WHY = "not explained yet"


def measurement(
    results: list[dict[str, Any]], seed: int, earlier: list[list[str]]
) -> dict[str, Any]:
    """Return the tables of a run. A survivor keeps the reason that a row of ``earlier`` gives."""
    whys = {tuple(row[:2]): row[2] for row in earlier if len(row) == 3}
    killers = Counter(one["killed_by"] for one in results if one["killed_by"])
    modules = sorted({Path(one["file"]).name for one in results})
    survivors = [one for one in results if not one["killed_by"]]
    survived = Counter(Path(one["file"]).name for one in survivors)
    every = Counter(Path(one["file"]).name for one in results)
    places = [
        (
            f"`{Path(one['file']).name}`: `{one['source']}`".replace("|", r"\|"),
            f"`{one['old'].strip()}` to `{one['new'].strip()}`",
        )
        for one in survivors
    ]
    tables: list[dict[str, Any]] = [
        {"headings": ["killed by", "mutants"], "rows": list(map(list, killers.most_common()))},
        {
            "headings": ["module", "killed", "survived"],
            "rows": [[name, every[name] - survived[name], survived[name]] for name in modules],
        },
        {
            "about": ["The mutants that survive:"],
            "headings": ["place", "change", "why no test can tell, or none does"],
            "rows": [[*place, whys.get(place, WHY)] for place in places],
        },
    ]
    return {
        "title": f"Seed {seed}, {len(results)} mutants",
        "about": [f"**{killers.total()} of {len(results)} killed.**"],
        "tables": tables,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/mutants.jsonl"))
    parser.add_argument("--report", action="store_true", help="add the run to docs/reports/mutants")
    parser.add_argument("--list", action="store_true", help="name the mutants, build nothing")
    arguments = parser.parse_args()
    mutants = chosen(arguments.seed, arguments.count)
    if arguments.list:
        print(*mutants, sep="\n")
        return 0
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    run = reports.here() if arguments.report else {}
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        arguments.out.open("w", encoding="utf-8") as lines,
    ):
        copies: Queue[Copy] = Queue()
        for job in range(arguments.jobs):
            copies.put(Copy(Path(folder) / str(job)))
        whole = copies.get()
        if by := whole.verdict():
            print(f"mutants: the source itself fails in {by}")
            return 1
        copies.put(whole)

        def judge(mutant: Mutant) -> tuple[Mutant, dict[str, object]]:
            copy = copies.get()
            try:
                return mutant, copy.judge(mutant)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for mutant, result in pool.map(judge, mutants):
                results.append(result)
                print(
                    mutant,
                    result["killed_by"] or "SURVIVED",
                    f"({result['seconds']} s)",
                    flush=True,
                )
                lines.write(json.dumps(result) + "\n")
                lines.flush()
    if arguments.report:
        kept = measurement(results, arguments.seed, reports.rows("mutants"))
        reports.save("mutants", run | kept)
    survived = sum(not result["killed_by"] for result in results)
    print(f"mutants: {len(mutants) - survived} of {len(mutants)} killed (seed {arguments.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
