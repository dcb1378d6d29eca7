"""Count the instructions that the core spends on a batch, with callgrind.

    python -m bench instructions [CELL…]           e.g. v2-none-1-100 v2-lz4-1-100
    python -m bench instructions --against TREE    every cell, in two built source trees

Needs valgrind. What else runs on the machine does not change the counts.

Without ``--against``: what check_ranges and scan_batches spend on 100 copies of one batch, by
function. With it: one call of each operation that the bench measures, here and there; exit code 1
if a ratio is above ``--most``. A call counts from the extension's entry to its return; the
interpreter around it does not.

Times of rows like these move by a factor of two with the core's state; counts do not. valgrind
shows programs an AVX2 processor, so wider kernels are not what it counts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import runs
from bench.validation import batches, cells

NO_VALGRIND = "valgrind is not installed: apt-get install valgrind"
CALLS = 2  # of each cell; the last one counts, when scratch memory is warm
JOB = """
import sys
sys.path.insert(0, sys.argv[1])
import batchval
del sys.path[0]  # the package is that tree's; the benches are of this one
assert batchval.__file__.startswith(sys.argv[1] + "/"), batchval.__file__
from bench.validation import worker
for path in sys.argv[4:]:
    with open(path, "rb") as file:
        job = worker.peer_named("batchval")[sys.argv[2]](file.read())
    for _ in range(int(sys.argv[3])):
        exec(job.statement, job.names)
"""
ROW = re.compile(r"^ *([\d,]+) \([ \d.]+%\)\s+(\S+)")
# the extension's entry of each operation: module, and how its symbol ends
MESSAGES = ("validator", r"LogValidator_\d+validate_messages_and_assign_offsets")
ENTRIES = {
    "check": ("validator", r"LogValidator_\d+check"),
    "check_ranges": ("validator", r"LogValidator_\d+check_ranges"),
    "validate_in_place": ("validator", r"LogValidator_\d+validate"),
    "scan_batches": ("columns", r"\d+scan_batches"),
    "validate_messages": MESSAGES,
    "convert": MESSAGES,
}
BY_FUNCTION = ("check_ranges", "scan_batches")  # of 100 batches a call


def total(out: Path) -> int:
    """Return the instructions of one of callgrind's files."""
    found = re.search(r"^totals: (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def annotated(out: Path) -> str:
    """Return callgrind's own table of the same, by function."""
    annotate = ["callgrind_annotate", "--auto=no", "--tree=none", "--threshold=100", str(out)]
    return subprocess.run(annotate, check=True, capture_output=True, text=True).stdout


def functions(table: str, everything: int) -> dict[str, int]:
    """Return the instructions by the function that executes them, without callers of what was
    counted: those have ``everything``.
    """
    counts: dict[str, int] = {}
    for line in table.splitlines():
        if (found := ROW.match(line)) and "PROGRAM" not in line:
            name = re.sub(
                r"^__pyx_\w+?_4core_(?:\d+[a-z]+_)?\d+",
                "",
                found[2].rpartition(":")[2].removesuffix("'2"),
            )
            executed = int(found[1].replace(",", ""))
            if executed < everything:
                counts[name] = counts.get(name, 0) + executed
    return counts


def entry(tree: Path, operation: str) -> str:
    """Return the symbol of an operation's wrapper; Cython numbers them anew in each version."""
    module, name = ENTRIES[operation]
    libraries = list((tree / "batchval" / "core").rglob(f"{module}.*.so"))
    if len(libraries) != 1:
        raise SystemExit(
            f"{tree} must be a source tree with built extensions, not one with {len(libraries)} {module}"
        )
    symbols = subprocess.run(
        ["nm", libraries[0]], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(rf" (__pyx_pw_\S*{name})$", symbols, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{libraries[0]} has no {operation}")
    return found[1]


def calls(tree: Path, operation: str, paths: list[Path], folder: Path) -> list[Path]:
    """Return callgrind's file of the last call of each cell."""
    files = [str(path) for path in paths]
    function = entry(tree, operation)
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}"]
    valgrind += [f"--toggle-collect={function}", f"--dump-after={function}"]
    job = [sys.executable, "-c", JOB, str(tree), operation, str(CALLS), *files]
    subprocess.run(
        [*valgrind, *job],
        check=True,
        capture_output=True,
        cwd=runs.ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    made = len(list(folder.glob("out.*")))
    if made == 0 or made % len(paths):
        raise SystemExit(f"{operation}: {made} calls of {len(paths)} cells")
    return [folder / f"out.{(i + 1) * made // len(paths)}" for i in range(len(paths))]


def totals(tree: Path, operation: str, paths: list[Path]) -> list[int]:
    """Return the instructions of one call of each cell."""
    with tempfile.TemporaryDirectory() as folder:
        return [total(out) for out in calls(tree, operation, paths, Path(folder))]


def ours(path: Path, operation: str) -> dict[str, float]:
    """Return the instructions a batch, by function."""
    with tempfile.TemporaryDirectory() as folder:
        (out,) = calls(runs.ROOT, operation, [path], Path(folder))
        return {name: count / 100 for name, count in functions(annotated(out), total(out)).items()}


def against(tree: Path, names: list[str], most: float) -> int:
    """Print each cell's ratio of this tree to ``tree``. Return 1 if one is above ``most``."""
    worst = 0.0
    print("| operation | cell | there | here | ratio |\n|---|---|---|---|---|")
    for operation, entered in ENTRIES.items():
        every = cells.legacy_cells() if entered is MESSAGES else cells.cells()
        paths = [cell.path(cells.BATCHES) for cell in every if not names or cell.name in names]
        if not paths:
            continue
        with ThreadPoolExecutor(2) as pool:
            there, here = pool.map(totals, (tree, runs.ROOT), [operation] * 2, [paths] * 2)
        for path, a, b in zip(paths, there, here, strict=True):
            worst = max(worst, b / a)
            print(
                f"| {operation} | {path.stem} | {a:,} | {b:,} | {b / a:.3f}{' **above**' * (b / a > most)} |"
            )
    print(f"\nhighest ratio {worst:.3f}, allowed {most}")
    return int(worst > most)


def by_function(names: list[str]) -> int:
    """Print the instructions of each cell by function."""
    for name in names or ["v2-none-1-100"]:
        for operation in BY_FUNCTION:
            counts = ours(cells.BATCHES / f"{name}.bin", operation)
            print(f"{name}, {operation}: {sum(counts.values()):.0f} instructions a batch")
            for function, instructions in sorted(counts.items(), key=lambda item: -item[1]):
                if instructions >= 2:
                    print(f"    {instructions:7.1f}  {function}")
    return 0


def main() -> int:
    parser = runs.parser(__doc__, quick="", is_saved=False)
    add = parser.add_argument
    add("cells", nargs="*", metavar="CELL", help="Cells (default: v2-none-1-100, or all).")
    add("--against", type=Path, metavar="TREE", help="A source tree built for the same Python.")
    add("--most", type=float, default=1.03, help="Highest allowed ratio (default: 1.03).")
    options = parser.parse_args()
    known = {cell.name for cell in [*cells.cells(), *cells.legacy_cells()]}
    if unknown := [name for name in options.cells if name not in known]:
        parser.error(f"cells are like v2-none-1-100, not {', '.join(unknown)}")
    if shutil.which("valgrind") is None:
        runs.tell(NO_VALGRIND)
        return 2
    batches.make(cells.BATCHES)
    if options.against:
        return against(options.against.resolve(), options.cells, options.most)
    return by_function(options.cells)


if __name__ == "__main__":
    sys.exit(main())
