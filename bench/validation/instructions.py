"""Where the instructions of a small batch go: callgrind's counts, which no neighbour can disturb.

    python bench/validation/instructions.py [CELL…]     e.g. v2-none-1-100 v2-lz4-1-100; needs valgrind

Counts what check_ranges and scan_batches spend in the core on 100 copies of one batch, and what the C prototype spends
on the same bytes: instructions a batch, by function. The Python call around is not in it. Times of rows like these move
by a factor of two with the core's state; counts do not. valgrind shows programs an AVX2 processor, so wider kernels are
not what it counts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import batches
import cells
import native

WARM, COUNTED = 2, 20
OURS = """
import sys
sys.path[:0] = sys.argv[1:3]
import peer_batchval
with open(sys.argv[3], "rb") as file:
    job = peer_batchval.OPERATIONS[sys.argv[4]](file.read())
for _ in range(int(sys.argv[5])):
    exec(job.statement, job.names)
"""
ROW = re.compile(r"^ *([\d,]+) \([ \d.]+%\)\s+(\S+)")
# what is counted: a function of the core with all that it calls, and the prototype's that does the same work
DOORS = {
    "check_ranges": ("*LogValidator_*judge_ranges", "deep100"),
    "scan_batches": ("*core_7columns_scan*", "header100"),
}


def callgrind(command: list[str], function: str, text: str = "") -> tuple[dict[str, int], str]:
    """Instructions inside ``function``, by the function that executes them; and callgrind's own file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        valgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={function}", f"--callgrind-out-file={out}"]
        subprocess.run([*valgrind, *command], input=text, text=True, check=True, capture_output=True, cwd=cells.ROOT)
        annotate = ["callgrind_annotate", "--auto=no", "--tree=none", "--threshold=100", str(out)]
        shown = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
        return functions(shown), out.read_text()


def functions(annotated: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in annotated.splitlines():
        if (found := ROW.match(line)) and "PROGRAM" not in line:
            name = re.sub(r"^__pyx_\w+?_4core_\d+", "", found[2].rpartition(":")[2].removesuffix("'2"))
            counts[name] = counts.get(name, 0) + int(found[1].replace(",", ""))
    return counts


def ours(path: Path, operation: str) -> dict[str, float]:
    """By difference: what making the job executes falls out."""

    def total(calls: int) -> dict[str, int]:
        command = [sys.executable, "-c", OURS, str(cells.ROOT), str(cells.HERE), str(path), operation, str(calls)]
        return callgrind(command, DOORS[operation][0])[0]

    few, many = total(WARM), total(WARM + COUNTED)
    return {name: (count - few.get(name, 0)) / COUNTED / 100 for name, count in many.items()}


def prototype(path: Path, operation: str) -> dict[str, float]:
    """It runs for a time, not so many times: how often its function was entered stands in callgrind's file."""
    function = DOORS[operation][1]
    counts, text = callgrind([str(native.prototype())], function, f"{path}\t{function}\t1\t100000\t0\n")
    number = re.search(rf"c?fn=\((\d+)\) {function}$", text, re.MULTILINE)
    assert number is not None
    calls = sum(int(n) for n in re.findall(rf"^cfn=\({number[1]}\).*\ncalls=(\d+)", text, re.MULTILINE))
    return {name: count / calls / 100 for name, count in counts.items()}


def main() -> int:
    if shutil.which("valgrind") is None:
        print("valgrind is not here", file=sys.stderr)
        return 2
    folder = batches.make(cells.BATCHES)
    for name in sys.argv[1:] or ["v2-none-1-100"]:
        for operation in DOORS:
            for label, count in (("batchval", ours), ("the prototype", prototype)):
                counts = count(folder / f"{name}.bin", operation)
                print(f"{name}, {operation}, {label}: {sum(counts.values()):.0f} instructions a batch")
                for function, instructions in sorted(counts.items(), key=lambda item: -item[1]):
                    if instructions >= 2:
                        print(f"    {instructions:7.1f}  {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
