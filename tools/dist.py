"""Build the distribution and try it as a user does: an sdist, a wheel, each extra.

    python -m tools.dist [--keep] [--compile]

1. Build the sdist twice: equal bytes. It holds the files that git has, and no others.
2. Build the wheel from the unpacked sdist and check how its modules are hardened
   (tools/hardening.py).
3. Build it again in another folder: equal bytes. Where make build has compiled the same C in this
   folder, both builds link its objects; with --compile, as for a release, the first one compiles
   all of it.
4. Install it with no extra and with each extra alone, in environments without a compiler; import
   every module and run the command line (tools/dist_probe.py). Of this and step 3, two are done at
   a time.
5. Build the wheel of the cases (fixtures/pyproject.toml), install it next to batchval's, and run
   tests/system/kit/installed.py through its pytest plugin.
6. Run tests/unit/core against the installed wheel, without the source tree.

The sdist and the wheels stay in dist/. Needs the packages of the extras test and check, as make
build installs them, and PyPI or pip's cache. Exit codes: 0, 1 something failed.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tools import hardening

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "dist"
OUT = ROOT / "dist"
#: the modules in this tree are a release's
COMPILED = ROOT / "build" / ".built-release"
#: steps at a time, of those that use one processor
AT_ONCE = 2
LOCK = ROOT / "requirements" / "dev.txt"
CONSTRAINTS = WORK / "constraints.txt"
#: extras for those who develop batchval: they are not what a user installs
DEVELOPMENT = {"bench", "check", "docs", "release", "test"}
#: what setuptools adds to an sdist
GENERATED = re.compile(r"PKG-INFO|setup\.cfg|batchval\.egg-info/[^/]+")
SEGMENT = "fixtures/segments/codec-lz4-0/00000000000000000000.log"
#: what the core's tests read
TESTS = ("tests", "fixtures", "tools", "pyproject.toml")


class DistError(Exception):
    """A step failed: the message is for the terminal."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Print what is done, and how long it took."""
    began = time.monotonic()
    print(f"dist: {what} ...", flush=True)
    yield
    print(f"dist: {what}: {time.monotonic() - began:.0f} s", flush=True)


def run(
    *command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None, show: bool = False
) -> str:
    """Run a command and return what it printed. Raises DistError with all of it if it fails."""
    words = [str(word) for word in command]
    output = None if show else subprocess.PIPE
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DistError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout or ''}")
    return done.stdout or ""


def source_date() -> str:
    """Return the time for all files of the artefacts: SOURCE_DATE_EPOCH, or that of the last
    commit.
    """
    return os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip()


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(what: str, source: Path, out: Path, **env: str) -> Path:
    """Build an sdist or a wheel from a folder and return its file."""
    out.mkdir(parents=True)
    settings = os.environ | {"SOURCE_DATE_EPOCH": source_date(), "BATCHVAL_BUILD": "release"} | env
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{what}"]
    run(*command, "--outdir", out, source, env=settings)
    (made,) = out.iterdir()
    return made


def same(first: Path, second: Path) -> None:
    """Compare two artefacts. Raises DistError that names the files which differ."""
    if first.name == second.name and digest(first) == digest(second):
        return
    differing = ", ".join(_differing(first, second)) or "in order"
    raise DistError(f"two builds of {first.name} differ ({second.name}): {differing}")


def _differing(first: Path, second: Path) -> list[str]:
    found = [dict(_members(path)) for path in (first, second)]
    return sorted(
        name for name in {*found[0], *found[1]} if found[0].get(name) != found[1].get(name)
    )


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            yield from (
                (one.filename, archive.read(one) + repr(one.date_time).encode())
                for one in archive.infolist()
            )
    else:
        with tarfile.open(path) as archive:
            for one in archive:
                file = archive.extractfile(one)
                yield (
                    one.name,
                    (file.read() if file else b"") + repr((one.mode, one.mtime)).encode(),
                )


def make_sdist() -> Path:
    """Build the sdist, compare a second one with it, and its content with what git has."""
    made = build("sdist", ROOT, WORK / "sdist")
    same(made, build("sdist", ROOT, WORK / "sdist-again"))
    tracked = set(filter(None, run("git", "ls-files", "-z").split("\0")))
    if differences := content_faults(made, {name for name in tracked if (ROOT / name).exists()}):
        raise DistError("\n".join(differences))
    return made


def content_faults(sdist: Path, tracked: set[str]) -> list[str]:
    """Return what an sdist lacks of the tracked files, and what it holds besides."""
    with tarfile.open(sdist) as archive:
        names = {one.name.partition("/")[2] for one in archive if one.isfile()}
    held = {name for name in names if not GENERATED.fullmatch(name)}
    return [
        *(f"{sdist.name} lacks {name}: see MANIFEST.in" for name in sorted(tracked - held)),
        *(f"{sdist.name} holds {name}, which git does not have" for name in sorted(held - tracked)),
    ]


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist and return its top folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def kept_objects() -> dict[str, str]:
    """Return the variables that make a build link the objects of make build where C is equal."""
    if not COMPILED.exists():
        return {}
    wrapper = [sys.executable, "-I", "-S", str(ROOT / "tools" / "kept_objects.py"), str(ROOT)]
    return {"CC": f"{shlex.join(wrapper)} {os.environ.get('CC', 'cc')}"}


def make_wheel(sdist: Path, compiles: bool) -> tuple[Path, Path]:
    """Build the wheel from the unpacked sdist; return it and its source folder."""
    source = unpack(sdist, WORK / "one")
    settings = {"CCACHE_DISABLE": "1"} if compiles else kept_objects()
    return build("wheel", source, WORK / "wheel", **settings), source


def compare_wheel(sdist: Path, wheel: Path) -> None:
    """Build the wheel again and compare it. Objects of make build are taken where C is equal.

    Raises:
        DistError: two builds in two folders differ.
    """
    with step(f"{wheel.name} again"):
        source = unpack(sdist, WORK / "another folder")
        same(wheel, build("wheel", source, WORK / "wheel-again", **kept_objects()))


def check_hardening(wheel: Path) -> None:
    """Check each module of the wheel, and that it names no folder of this machine."""
    count, lacking = hardening.check(
        wheel, {str(ROOT), sys.prefix, sys.base_prefix, tempfile.gettempdir() + "/"}
    )
    if lacking:
        raise DistError("\n".join(lacking))
    print(f"dist: {count} modules are hardened")


def extras(wheel: Path) -> list[str]:
    """Return the extras that users install, as the wheel's metadata has them; the first is none."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return ["", *sorted(set(metadata.get_all("Provides-Extra", [])) - DEVELOPMENT)]


def write_constraints() -> None:
    """Write the versions of the lock file without their hashes, which a wheel just built has
    not.
    """
    lines = [
        line for line in LOCK.read_text("utf-8").splitlines() if re.match(r"[A-Za-z0-9]", line)
    ]
    CONSTRAINTS.write_text("".join(f"{line.rstrip(chr(92)).strip()}\n" for line in lines), "utf-8")


def environment(name: str, wheel: Path, extra: str) -> Path:
    """Make an environment with the wheel and one extra; return its interpreter."""
    place = WORK / "environments" / name
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    wanted = f"batchval[{extra}] @ {wheel.as_uri()}" if extra else f"batchval @ {wheel.as_uri()}"
    install(python, "--no-compile", "--constraint", CONSTRAINTS, wanted)
    return python


def install(python: Path, *words: str | Path) -> None:
    """Install with this environment's pip into that of another interpreter."""
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "--quiet", "--disable-pip-version-check", "install", *words, env=bare(python))


def bare(python: Path) -> dict[str, str]:
    """Return the variables of this process, with a path that has no compiler, and none named."""
    hidden = {"CC", "CXX", "LDSHARED", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return kept | {"PATH": str(python.parent), "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}


def try_extra(extra: str, wheel: Path, source: Path) -> None:
    """Install the wheel with one extra, import all of it, run the command line; then remove it."""
    with step(f"batchval[{extra}]" if extra else "batchval without extras"):
        python = environment(extra or "none", wheel, extra)
        probe = ROOT / "tools" / "dist_probe.py"
        print(run(python, "-I", probe, extra, source / SEGMENT, cwd=WORK, env=bare(python)), end="")
        shutil.rmtree(python.parents[1])


def prepare_core_tests(wheel: Path, source: Path) -> tuple[Path, Path]:
    """Make a folder with the core's tests, and an environment in which only the installed wheel can
    be imported as batchval; return the folder and the interpreter.
    """
    with step("batchval[test]"):
        place = WORK / "tests"
        place.mkdir()
        for name in TESTS:
            (shutil.copytree if (source / name).is_dir() else shutil.copy2)(
                source / name, place / name
            )
        python = environment("tests", wheel, "test")
        check_import("batchval", place, python)
        return place, python


def check_import(package: str, place: Path, python: Path, shown: str = "__file__") -> None:
    """Check that tests in a folder import a package of their environment. Raises DistError.

    ``shown``  the attribute of the package that says where it lies
    """
    words = f"import {package}; print({package}.{shown})"
    where = run(python, "-c", words, cwd=place, env=bare(python)).strip()
    if not Path(where).is_relative_to(python.parents[1]):
        raise DistError(f"the tests would import {where}, not the wheel")


def run_core_tests(place: Path, python: Path) -> None:
    """Run the core's tests on the wheel."""
    command = [python, "-m", "pytest", "-q", "-n", "2", "-m", "not slow and not alone"]
    # test processes share compiled modules
    settings = {
        key: value for key, value in bare(python).items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    run(*command, "-p", "no:cacheprovider", "tests/unit/core", cwd=place, env=settings, show=True)


def try_fixtures(source: Path, place: Path, python: Path) -> Path:
    """Build the wheel of the cases, install it, and run batchval on them through its plugin."""
    with step("batchval-fixtures"):
        made = build("wheel", source / "fixtures", WORK / "fixtures")
        install(python, "--no-deps", "--no-index", made)
        check_import("batchval_fixtures", place, python, "ROOT")
        command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += ["tests/system/kit/installed.py"]
        run(*command, cwd=place, env=bare(python))
        return made


def all_of(tasks: list[Callable[[], Any]]) -> list[Any]:
    """Carry out tasks, some at a time, and return what they returned; the first error ends it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        under_way = [pool.submit(task) for task in tasks]
        try:
            return [one.result() for one in under_way]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def distribute(keep: bool, compiles: bool) -> None:
    """Carry out all steps. Raises DistError."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    OUT.mkdir(exist_ok=True)
    for file in (*OUT.glob("*.tar.gz"), *OUT.glob("*.whl")):
        file.unlink()
    with step("sdist, twice"):
        sdist = make_sdist()
    with step("wheel from the sdist"):
        wheel, source = make_wheel(sdist, compiles)
    check_hardening(wheel)
    write_constraints()
    (place, python), *_ = all_of(
        [
            partial(prepare_core_tests, wheel, source),
            partial(compare_wheel, sdist, wheel),
            *(partial(try_extra, extra, wheel, source) for extra in extras(wheel)),
        ]
    )
    fixtures = try_fixtures(source, place, python)
    with step("tests/unit/core on the installed wheel"):
        run_core_tests(place, python)
    for made in (sdist, wheel, fixtures):
        shutil.copy2(made, OUT)
        print(f"dist: dist/{made.name}, {made.stat().st_size:,} bytes, sha256 {digest(made)}")
    if not keep:
        shutil.rmtree(WORK)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    keep = "Keep build/dist: sources, wheels, the environment of tests."
    parser.add_argument("--keep", action="store_true", help=keep)
    compiles = "Compile the C of the first wheel again, as for a release."
    parser.add_argument("--compile", action="store_true", help=compiles)
    options = parser.parse_args(arguments)
    try:
        with step("all"):
            distribute(options.keep, options.compile)
        # of this process and of those that it has waited for
        print(f"dist: {sum(os.times()[:4]):.0f} s of CPU")
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
