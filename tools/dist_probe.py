"""Try an installed batchval with one extra: import every module, run the command line.

    ENVIRONMENT/bin/python -I tools/dist_probe.py EXTRA SEGMENT [--beside-compiler]

EXTRA may be empty. Runs in an environment that holds nothing but the wheel and what the extra
brings. tools/dist.py makes it; with --beside-compiler it is cibuildwheel's. Prints the faults, one
a line. Exit codes: 0, 1 there are faults.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: what the wheel installs: Spark finds its data sources by the names of the others
PACKAGES = ("batchval", "pyspark_batchval", "pyspark_batchval_findings", "pyspark_batchval_live")
#: extras that bring what others bring
BRINGS = {"otel": {"otel", "proxy"}}
#: importing it runs the program
PROGRAM = "__main__"


def names() -> Iterator[str]:
    """Yield the name of every installed module of the distribution."""
    yield from PACKAGES
    import batchval

    for found in pkgutil.walk_packages(batchval.__path__, "batchval.", onerror=lambda name: None):
        yield found.name
        # its import failed: look inside all the same
        if found.ispkg and found.name not in sys.modules:
            place = Path(*batchval.__path__).joinpath(*found.name.split(".")[1:])
            yield from (f"{found.name}.{one.name}" for one in pkgutil.iter_modules([str(place)]))


def imports(extra: str) -> Iterator[str]:
    """Yield each module that cannot be imported and is not one of another extra's."""
    from batchval.optional import EXTRAS, MissingExtraError

    count = refused = 0
    for name in names():
        if name.endswith(PROGRAM):
            continue
        owners = {of for start, (of, _) in EXTRAS.items() if name.startswith(start)}
        try:
            importlib.import_module(name)
            count += 1
        except MissingExtraError as error:
            refused += 1
            missing = error.extra
            is_brought = missing in BRINGS.get(extra, {extra})
            if missing not in owners or is_brought or f"batchval[{missing}]" not in str(error):
                yield f"{name}: {error}"
        except BaseException as error:  # whatever a module raises, also SystemExit
            yield f"{name}: {type(error).__name__}: {error}"
    if extra == "spark":
        for package in PACKAGES[1:]:
            if not hasattr(sys.modules[package], "DefaultSource"):
                yield f"{package}: Spark finds no data source in it"
    print(f"{count} modules imported, {refused} of other extras")
    if count < 100:
        yield f"only {count} modules were imported"


def commands(segment: str) -> Iterator[str]:
    """Yield each command that does not print what it should."""
    from batchval import __version__

    program = str(Path(sys.executable).with_name("batchval"))
    for arguments, wanted in [
        (["--version"], f"batchval {__version__}"),
        (["--help"], "Usage: batchval"),
        (["check", segment], "1 file"),
        (["check", "--help"], "Usage: batchval check"),
    ]:
        ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        if ran.returncode or wanted not in ran.stdout:
            yield f"batchval {' '.join(arguments)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"


def origin() -> Iterator[str]:
    """Yield the folder of batchval, if it is not in this environment."""
    import batchval

    if not Path(batchval.__file__).is_relative_to(sys.prefix):
        yield f"batchval was imported from {batchval.__file__}, not from the wheel"


def build_tools() -> Iterator[str]:
    """Yield what can compile here: a compiler, Cython."""
    for program in ("cc", "gcc", "clang", "c++", "cython", "make"):
        if place := shutil.which(program):
            yield f"{place} is on the path"
    if importlib.util.find_spec("Cython"):
        yield "Cython is installed"


def main(extra: str, segment: str, *options: str) -> int:
    """Run the probe."""
    faults = [*origin(), *imports(extra), *commands(segment)]
    if "--beside-compiler" not in options:
        faults += build_tools()
    print(*faults, sep="\n", end="\n" * bool(faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
