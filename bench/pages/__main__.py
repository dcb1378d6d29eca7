"""Write what is rendered from bench/results, or check it.

    python -m bench.pages            write docs/benchmarks and the READMEs' figures
    python -m bench.pages --check    exit with 1 if a file differs from the results, and name it
    python -m bench.pages --commits  exit with 1 if a result's commit is not in the history, or the
                                     gate's is too old, and name it

A bench that saves a result writes docs/benchmarks, and the figures of docs/concepts/kip.md and
docs/guide/old-clients.md, itself; README.md is written by this command only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

import bench.pages as place
from bench.pages import (
    bars,
    broker_claims,
    claims,
    headline,
    index,
    libraries,
    perf,
    pipelining,
    proxy,
    reports,
    saturation,
    spark,
    validation,
)
from tests.evidence.hostile_gate import page as hostile_clients
from tests.system.interop.old_clients import page as old_clients

PAGES = {
    "validation": validation,
    "libraries": libraries,
    "claims": claims,
    "broker": broker_claims,
    "saturation": saturation,
    "proxy": proxy,
    "hostile": hostile_clients,
    "pipelining": pipelining,
    "perf": perf,
    "spark": spark,
}
NOTE = "<!-- Rendered from bench/results: python -m bench.pages -->"


def documents() -> dict[Path, str]:
    """Return the text of every file of docs/ that is rendered, whole or between marks."""
    results = {name: place.read(name) for of in PAGES.values() for name in of.SOURCES}
    found = {
        place.DOCS / "README.md": index.render(results, PAGES),
        place.DOCS / "validation.svg": bars.draw(results["validation"]),
        place.DOCS / "saturation.svg": saturation.draw(results["saturation"]),
    }
    kip = place.DOCS.parent / "concepts" / "kip.md"
    found[kip] = headline.put(kip.read_text("utf-8"), saturation.proposal(results["saturation"]))
    old = place.DOCS.parent / "guide" / "old-clients.md"
    found[old] = headline.put(
        old.read_text("utf-8"), old_clients.render(place.read(old_clients.SOURCE))
    )
    for name, of in PAGES.items():
        found[place.DOCS / f"{name}.md"] = f"{NOTE}\n# {of.TITLE}\n\n{of.render(results)}"
    return found


def readme() -> dict[Path, str]:
    """Return README.md with the figures of the results."""
    results = {name: place.read(name) for name in headline.SOURCES}
    path = place.ROOT / "README.md"
    return {path: headline.put(path.read_text("utf-8"), headline.rows(results))}


def write(texts: dict[Path, str]) -> None:
    """Write these files."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def different(texts: dict[Path, str]) -> list[Path]:
    """Return the files whose text is another one."""
    return [
        path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text
    ]


def unknown_commits() -> list[str]:
    """Return the results whose sources nobody can check out: not of this commit or one before."""
    found = []
    commits = [
        (path.name, json.loads(path.read_text("utf-8"))["machine"]["commit"])
        for path in sorted(place.RESULTS.glob("*.json"))
    ]
    for name, commit in commits + reports.commits():
        if _git("merge-base", "--is-ancestor", commit, "HEAD", check=False).returncode:
            found.append(f"{name}: commit {commit} is not in the history of HEAD: measure again")
    return found


def outdated() -> list[str]:
    """Return why the gate's figures must be measured again: its data path has changed, or they are
    old. Raises CalledProcessError for a commit that is not in the repository.
    """
    result = place.read("proxy")
    commit = result["machine"]["commit"]
    changed = _git("diff", "--name-only", commit, "HEAD", "--", *proxy.DATA_PATH).stdout.split()
    found = [f"proxy.json: {path} has changed since {commit}" for path in changed]
    newest = datetime.date.fromisoformat(_git("log", "-1", "--format=%cs").stdout.strip())
    age = newest - datetime.datetime.fromisoformat(result["date"]).date()
    if age.days > proxy.MAX_AGE_DAYS:
        found.append(
            f"proxy.json: of {result['date']}, {age.days} days before the newest commit: at most"
            f" {proxy.MAX_AGE_DAYS}"
        )
    return found


def _git(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *words], cwd=place.ROOT, capture_output=True, text=True, check=check
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    about = str(__doc__).splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=about)
    check = "Write nothing. Exit with 1 if a file differs from the results."
    parser.add_argument("--check", action="store_true", help=check)
    commits = "Write nothing. Exit with 1 if a result's commit is unknown, or the gate's too old."
    parser.add_argument("--commits", action="store_true", help=commits)
    options = parser.parse_args(argv)
    if options.commits:
        for line in (found := unknown_commits() or outdated()):
            print(line)
        return int(bool(found))
    texts = documents() | readme()
    if not options.check:
        write(texts)
        return 0
    others = different(texts)
    for path in others:
        print(f"{path.relative_to(place.ROOT)} differs from the results: python -m bench.pages")
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main())
