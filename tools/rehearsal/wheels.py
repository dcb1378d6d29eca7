"""The wheels of a rehearsal: the new one, the previous one, and what both depend on."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "rehearsal"
#: the commit to upgrade from until the first release has a tag
FIRST = "27083e7"
EXTRAS = "proxy,audit"
#: where a commit has its version, as a literal or not at all
VERSION_FILES = ("pyproject.toml", "batchval/__init__.py")
_VERSION = re.compile(r'^(version|__version__)( = )"([^"\n]+)"$', re.MULTILINE)


class WheelError(Exception):
    """A wheel cannot be had: the message is for the terminal."""


def version_in(text: str) -> str | None:
    """Return the version that a source file declares, or None."""
    found = _VERSION.search(text)
    return found[3] if found else None


def patched_version(text: str, version: str) -> str:
    """Return a source file with another version in its declaration, if it has one."""
    return _VERSION.sub(rf'\g<1>\g<2>"{version}"', text, count=1)


def lower_version(previous: str, new: str) -> str:
    """Return the previous version if it is lower than the new one, else a lower one.

    pip upgrades to a higher version only, and two commits may have one version before a release.
    ValueError where the new version is a development version of number 0: nothing useful is lower.
    """
    if Version(previous) < Version(new):
        return previous
    lowered = f"{Version(new).base_version}.dev0"
    if not Version(lowered) < Version(new):
        raise ValueError(f"the new version {new} must be higher than {lowered}, to upgrade from it")
    return lowered


def version_of(wheel: Path) -> str:
    """Return the version in a wheel's file name."""
    return str(parse_wheel_filename(wheel.name)[1])


def new_wheel(chosen: Path | None) -> tuple[Path, str]:
    """Return the new wheel and where it comes from.

    It is the one that was chosen, else the one of ``dist/`` for this interpreter, else one built
    from the last commit. WheelError where the choice is not clear.
    """
    if chosen is not None:
        if not chosen.is_file():
            raise WheelError(f"--wheel {chosen}: no such file")
        return chosen.resolve(), str(chosen)
    fitting = [wheel for wheel in (ROOT / "dist").glob("batchval-*.whl") if _fits(wheel)]
    if len(fitting) > 1:
        names = ", ".join(sorted(wheel.name for wheel in fitting))
        raise WheelError(f"dist/ has {names}: choose one with --wheel")
    if fitting:
        return fitting[0], f"dist/{fitting[0].name}"
    commit = _git("rev-parse", "--short=12", "HEAD")
    return build(commit, None), f"commit {commit}"


def _fits(wheel: Path) -> bool:
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(sys_tags())


def previous_commit(ref: str | None) -> str:
    """Return the hash of the commit to upgrade from: of ``ref``, the last tag before HEAD, or
    FIRST.
    """
    return _git("rev-parse", "--short=12", f"{ref or _last_tag() or FIRST}^{{commit}}")


def previous_wheel(commit: str, new: str) -> tuple[Path, str]:
    """Return the wheel of an earlier commit and its origin. Its version is lower than ``new``."""
    declared = next(
        filter(None, (version_in(_git("show", f"{commit}:{file}")) for file in VERSION_FILES)), None
    )
    if declared is None:
        raise WheelError(f"commit {commit} declares no version in {' or '.join(VERSION_FILES)}")
    version = lower_version(declared, new)
    origin = f"commit {commit}" + (
        f", version {declared} patched to {version}" if version != declared else ""
    )
    return build(commit, version), origin


def _last_tag() -> str | None:
    try:
        return _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    except WheelError:
        return None


def build(commit: str, version: str | None) -> Path:
    """Return the wheel of a commit, with another version if one is named.

    It is built from the commit's files in a folder of its own, with this interpreter and its
    installed Cython, and kept in build/rehearsal/built.
    """
    kept = WORK / "built" / f"{commit}-{version or 'as-it-is'}"
    if found := sorted(kept.glob("*.whl")):
        return found[0]
    source = kept.with_suffix(".source")
    shutil.rmtree(source, ignore_errors=True)
    try:
        _unpack(commit, source)
        if version is not None:
            for name in VERSION_FILES:
                file = source / name
                file.write_text(patched_version(file.read_text("utf-8"), version), "utf-8")
        fresh = source / "wheels"
        _pip(
            "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(fresh), ".", cwd=source
        )
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(fresh, kept)
    finally:
        shutil.rmtree(source, ignore_errors=True)
    (made,) = kept.glob("*.whl")
    if version is not None and version_of(made) != version:
        raise WheelError(f"{made.name} was to have version {version}")
    return made


def _unpack(commit: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        assert archive.stdout is not None
        with tarfile.open(fileobj=archive.stdout, mode="r|") as members:
            members.extractall(folder, filter="data")
    if archive.returncode:
        raise WheelError(f"git archive {commit}: exit code {archive.returncode}")


def dependencies(wheels: list[Path]) -> list[Path]:
    """Return wheels of all that these wheels depend on with EXTRAS, newest versions as pip takes
    them.

    They are fetched by the pip of this interpreter and kept in build/rehearsal/wheels.
    """
    kept = WORK / "wheels"
    kept.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        wanted = f"batchval[{EXTRAS}] @ {wheel.as_uri()}"
        _pip("download", "--only-binary=:all:", "--dest", str(kept), wanted, cwd=WORK)
    for own in kept.glob("batchval-*.whl"):
        own.unlink()
    return sorted(kept.glob("*.whl"))


def digest(wheel: Path) -> str:
    """Return the first 12 digits of a wheel's SHA-256."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()[:12]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _pip(*words: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(
            f"pip {' '.join(words)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        )


#: the page with an example of every setting: its path, and the path in older commits
SETTINGS_PAGES = ("docs/reference/proxy/settings.md", "docs/proxy-configuration.md")


def settings_of_docs(commit: str) -> str:
    """Return the example with every key of the settings page at a commit (YAML)."""
    present = _git("ls-tree", "--name-only", "-r", commit, *SETTINGS_PAGES).split()
    text = _git("show", f"{commit}:{present[0]}") if present else ""
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise WheelError(f"the settings page of commit {commit} has no example in YAML")
    return found[1]
