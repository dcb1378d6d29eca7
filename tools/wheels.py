"""Build the wheels of a release for Linux on one machine, with zig's C compiler.

    python -m tools.wheels [--python 3.13] [--target x86_64-musl] [--jobs N]

For each version of CPython and each target: the modules, compiled from one unpacked sdist by
setup.py's own flags with "zig cc", which has the headers of old glibc, of musl and of ARM64; then
the wheel. Each wheel must pass tools/hardening.py, and have the policy of its tag by
auditwheel. The wheels go to dist/wheels. Prints a table. Needs the extra release (make wheels).

Objects are kept by zig's own cache: the second run takes minutes less. Exit codes: 0, 1 a wheel
could not be built or checked.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import re
import shutil
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

from tools import dist, hardening, musl_link, python_headers

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
WORK = dist.ROOT / "build" / "wheels"
OUT = dist.OUT / "wheels"


class Target(NamedTuple):
    """What is compiled for: zig's name of it, and the names in Python's tags."""

    name: str
    zig: str
    machine: str
    suffix: str  # of the module's file, after the version
    policy: str  # that auditwheel must find, or an older one


#: glibc 2.17 is the oldest that numpy's wheels of CPython 3.11 run on: manylinux2014
TARGETS = {
    one.name: one
    for one in (
        Target(
            "x86_64-glibc",
            "x86_64-linux-gnu.2.17",
            "x86_64",
            "x86_64-linux-gnu",
            "manylinux_2_17_x86_64",
        ),
        Target(
            "x86_64-musl",
            "x86_64-linux-musl",
            "x86_64",
            "x86_64-linux-musl",
            "musllinux_1_2_x86_64",
        ),
        Target(
            "aarch64-glibc",
            "aarch64-linux-gnu.2.17",
            "aarch64",
            "aarch64-linux-gnu",
            "manylinux_2_17_aarch64",
        ),
        Target(
            "aarch64-musl",
            "aarch64-linux-musl",
            "aarch64",
            "aarch64-linux-musl",
            "musllinux_1_2_aarch64",
        ),
    )
}
#: the older name of a policy, which old versions of pip know
LEGACY = {"manylinux_2_17": "manylinux2014"}


class Made(NamedTuple):
    """A row of the table."""

    version: str
    target: str
    policy: str
    size: int
    modules: int
    headers: str


def compiled(
    source: Path, version: str, target: Target, headers: python_headers.Headers, jobs: int
) -> Path:
    """Compile all modules for one version and target; return the folder that holds them."""
    number = version.replace(".", "")
    lib = WORK / f"{target.name}-{number}"
    shutil.rmtree(lib, ignore_errors=True)
    folders = " ".join(f"-I{folder}" for folder in headers.folders)
    zig = f"{sys.executable} -m ziglang cc -target {target.zig} -Wno-unused-command-line-argument"
    settings = {
        **os.environ,
        "BATCHVAL_BUILD": "release",
        "CC": f"{zig} {folders}",
        "LDSHARED": _linker(target, f"{zig} -shared"),
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{number}-{target.suffix}.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SOURCE_DATE_EPOCH": dist.source_date(),
    }
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(lib / "lib")]
    command += ["--build-temp", str(lib / "temp"), "--parallel", str(jobs)]
    dist.run(*command, cwd=source, env=settings)
    return lib / "lib"


def _linker(target: Target, default: str) -> str:
    if not target.zig.endswith("musl"):
        return default
    libc = musl_link.make_libc(WORK / "musl", target.zig, target.machine)
    return f"{sys.executable} {dist.ROOT / 'tools' / 'musl_link.py'} {libc} -shared"


def common_files(source: Path) -> dict[str, bytes]:
    """Return the files that all wheels share: the Python files and the metadata."""
    out, metadata = WORK / "common", WORK / "metadata"
    for folder in (out, metadata):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    dist.run(sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", out, cwd=source)
    script = "import sys; from setuptools.build_meta import prepare_metadata_for_build_wheel as p; p(sys.argv[1])"
    dist.run(sys.executable, "-c", script, metadata, cwd=source)
    (info,) = metadata.glob("*.dist-info")
    shutil.move(info, out)
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file()
    }


def write_wheel(files: dict[str, bytes], tags: list[str], out: Path) -> Path:
    """Write a wheel with a WHEEL and RECORD of its own; times are SOURCE_DATE_EPOCH's, the order is
    the names'.
    """
    files = {
        name: data
        for name, data in files.items()
        if not re.search(r"\.dist-info/(WHEEL|RECORD)$", name)
    }
    (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    lines = ["Wheel-Version: 1.0", "Generator: batchval tools/wheels.py", "Root-Is-Purelib: false"]
    files = files | {
        f"{info}/WHEEL": "\n".join([*lines, *(f"Tag: {tag}" for tag in tags), "", ""]).encode()
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name in sorted(files):
        sha = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={sha}", len(files[name])))
    rows.writerow((f"{info}/RECORD", "", ""))
    python, abi, _ = tags[0].split("-")
    platforms = ".".join(tag.split("-")[2] for tag in tags)
    path = out / f"{info.removesuffix('.dist-info')}-{python}-{abi}-{platforms}.whl"
    when = _zip_time(int(dist.source_date()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*sorted(files.items()), (f"{info}/RECORD", record.getvalue().encode())]:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def _zip_time(seconds: int) -> tuple[int, int, int, int, int, int]:

    return time.gmtime(max(seconds, 315532800))[:6]  # a zip begins in 1980


def policy_of(wheel: Path) -> str:
    """Return the policy that auditwheel finds a wheel to be consistent with. Raises DistError."""
    printed = dist.run(sys.executable, "-m", "auditwheel", "show", wheel)
    found = re.search(r'platform\s+tag:\s+"(\w+)"', printed)
    if found is None:
        raise dist.DistError(f"auditwheel names no policy for {wheel.name}:\n{printed}")
    return found[1]


def holds(found: str, wanted: str) -> bool:
    """Return whether a policy is the wanted one or an older one of the same family and
    processor.
    """
    pattern = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")
    one, other = pattern.fullmatch(found), pattern.fullmatch(wanted)
    if one is None or other is None or (one[1], one[4]) != (other[1], other[4]):
        return False
    return (int(one[2]), int(one[3])) <= (int(other[2]), int(other[3]))


def build(source: Path, common: dict[str, bytes], version: str, target: Target, jobs: int) -> Made:
    """Build and check one wheel. Raises DistError, NoHeadersError."""
    headers = python_headers.find(version, WORK)
    lib = compiled(source, version, target, headers, jobs)
    modules = {path.relative_to(lib).as_posix(): path.read_bytes() for path in lib.rglob("*.so")}
    family = target.policy.removesuffix(f"_{target.machine}")
    names = [family, *filter(None, [LEGACY.get(family)])]
    number = version.replace(".", "")
    tags = [f"cp{number}-cp{number}-{name}_{target.machine}" for name in names]
    wheel = write_wheel(common | modules, tags, OUT)
    count, lacking = hardening.check(wheel, {str(dist.ROOT), sys.prefix, sys.base_prefix})
    found = policy_of(wheel)
    if not holds(found, target.policy):
        lacking.append(f"{wheel.name}: auditwheel finds {found}, not {target.policy}")
    if lacking:
        wheel.unlink()
        raise dist.DistError("\n".join(lacking))
    return Made(version, target.name, found, wheel.stat().st_size, count, headers.origin)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--python",
        action="append",
        choices=VERSIONS,
        help="Build for this version only; may be repeated.",
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=TARGETS,
        help="Build for this target only; may be repeated.",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="Number of compilers at once (default: all cores).",
    )
    options = parser.parse_args(arguments)
    shutil.rmtree(WORK / "source", ignore_errors=True)
    for folder in (WORK / "sdist", OUT):
        shutil.rmtree(folder, ignore_errors=True)
    OUT.mkdir(parents=True)
    source = dist.unpack(dist.build("sdist", dist.ROOT, WORK / "sdist"), WORK / "source")
    common = common_files(source)
    rows, failed = [], False
    for version in options.python or VERSIONS:
        for name in options.target or TARGETS:
            try:
                with dist.step(f"CPython {version}, {name}"):
                    rows.append(build(source, common, version, TARGETS[name], options.jobs))
            except (dist.DistError, python_headers.NoHeadersError) as error:
                failed = True
                print(f"wheels: CPython {version}, {name}: {error}", file=sys.stderr)
    print("| CPython | target | policy | bytes | modules | headers |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.version} | {row.target} | {row.policy} | {row.size:,} | {row.modules} | {row.headers} |"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
