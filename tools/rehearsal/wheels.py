"""The wheels of a rehearsal: the new one, the previous one, and what both depend on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from tools.rehearsal.steps import StepFailed, expect

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "rehearsal"
#: the commit to upgrade from until the first release has a tag; its audit tables are of today's
#: version
FIRST = "98347da"
EXTRAS = "proxy,audit"


def version_of(wheel: Path) -> str:
    """Return the version in a wheel's file name."""
    return str(parse_wheel_filename(wheel.name)[1])


def new_wheel(chosen: Path | None) -> tuple[Path, str]:
    """Return the new wheel and where it comes from.

    It is the one that was chosen, else the one of ``dist/`` for this interpreter, else one built
    from the last commit. StepFailed where the choice is not clear.
    """
    if chosen is not None:
        expect(chosen.is_file(), f"--wheel {chosen}: no such file")
        return chosen.resolve(), str(chosen)
    fitting = [wheel for wheel in (ROOT / "dist").glob("batchval-*.whl") if _fits(wheel)]
    names = ", ".join(sorted(wheel.name for wheel in fitting))
    expect(len(fitting) <= 1, f"dist/ has {names}: choose one with --wheel")
    if fitting:
        return fitting[0], f"dist/{fitting[0].name}"
    commit = _git("rev-parse", "HEAD")
    return build(commit), f"commit {commit}"


def _fits(wheel: Path) -> bool:
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(sys_tags())


def previous_commit(ref: str | None) -> str:
    """Return the hash of the commit to upgrade from: of ``ref``, the last tag before HEAD, or
    FIRST.
    """
    return _git("rev-parse", f"{ref or _last_tag() or FIRST}^{{commit}}")


def _last_tag() -> str | None:
    try:
        return _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    except StepFailed:
        return None


def build(commit: str) -> Path:
    """Return the wheel of a commit, built from its own files with this environment's Cython.

    It is kept in build/rehearsal/built.
    """
    kept = WORK / "built" / commit
    if not list(kept.glob("*.whl")):
        options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(kept))
        _pip("wheel", *options, f"git+file://{ROOT}@{commit}")
    (made,) = kept.glob("*.whl")
    return made


def dependencies(wheels: list[Path]) -> list[Path]:
    """Return wheels of all that these wheels depend on with EXTRAS, newest versions as pip takes
    them.

    They are fetched by the pip of this interpreter and kept in build/rehearsal/wheels.
    """
    kept = WORK / "wheels"
    kept.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        wanted = f"batchval[{EXTRAS}] @ {wheel.as_uri()}"
        _pip("download", "--only-binary=:all:", "--dest", str(kept), wanted)
        for own in kept.glob("batchval-*.whl"):
            own.unlink()
    return sorted(kept.glob("*.whl"))


def _git(*words: str) -> str:
    return _run(["git", *words], ROOT)


def _pip(*words: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words], WORK)


def _run(command: list[str], folder: Path) -> str:
    """Return what a command printed. StepFailed if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    printed = (done.stdout + done.stderr)[-3000:]
    expect(not done.returncode, f"{' '.join(command)}: exit code {done.returncode}\n{printed}")
    return done.stdout.strip()


#: the page with an example of every setting: its path, and the path in older commits
SETTINGS_PAGES = ("docs/reference/proxy/settings.md", "docs/proxy-configuration.md")


def settings_of_docs(commit: str) -> str:
    """Return the example with every key of the settings page at a commit (YAML)."""
    present = _git("ls-tree", "--name-only", "-r", commit, *SETTINGS_PAGES).split()
    text = _git("show", f"{commit}:{present[0]}") if present else ""
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise StepFailed(f"the settings page of commit {commit} has no example in YAML")
    return found[1]
