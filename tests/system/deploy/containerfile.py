"""deploy/Containerfile without a container runtime: its instructions, and its steps in bare trees.

Each stage is a copy of a bare Debian tree. RUN is a command in it (chroot), COPY copies files of
git or of an earlier stage. The last stage is run with what the file and the chart say: read-only,
user 10001, no capabilities.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Containerfile"
#: The suite of the base image's tag.
SUITES: Final = {"debian:13-slim": "trixie"}
#: Mounts that end with the command: the namespace is its own.
_ENTER: Final = (
    'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && '
    'mount --bind /etc/resolv.conf "$0/etc/resolv.conf" && exec chroot "$0" "$@"'
)
#: As ``podman run --read-only --cap-drop=all`` with a volume for the state.
_ENTER_READ_ONLY: Final = (
    'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && '
    'mount -t tmpfs tmpfs "$0/tmp" && mount --bind "$STATE" "$0/var/lib/batchval" && '
    'mount -o remount,bind,ro "$0" && '
    'exec chroot "$0" setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs '
    '--inh-caps=-all --bounding-set=-all "$@"'
)


class Instruction(NamedTuple):
    """One line of the file, continuation lines joined."""

    word: str
    value: str


def instructions() -> list[Instruction]:
    """Return all instructions, in order."""
    text = re.sub(r"\\\n\s*", " ", FILE.read_text("utf-8"))
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [Instruction(*line.split(None, 1)) for line in lines]


def the(word: str) -> str:
    """Return the value of an instruction that stands once."""
    (found,) = (one.value for one in instructions() if one.word == word)
    return found


def words(word: str) -> list[str]:
    """Return the value of an instruction in its JSON form."""
    found: list[str] = json.loads(the(word))
    return found


def base() -> str:
    """Return the default of the argument BASE, without its digest."""
    whole = next(one.value for one in instructions() if one.value.startswith("BASE="))
    return whole.removeprefix("BASE=").partition("@")[0]


@dataclass
class Stage:
    """The tree of one stage, its environment and its folder."""

    tree: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"

    def run(self, command: Sequence[str]) -> None:
        """Run a command in the tree as root, with the network of this machine."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            **self.environment,
        }
        if certificates := os.environ.get("PIP_CERT"):  # a network that ends TLS
            shutil.copy(certificates, self.tree / "tmp" / "authorities.pem")
            environment |= {"PIP_CERT": "/tmp/authorities.pem"}
        inside = [
            "/usr/bin/env",
            "-i",
            "--chdir",
            self.folder,
            *(f"{key}={value}" for key, value in environment.items()),
        ]
        whole = ["unshare", "--mount", "sh", "-c", _ENTER, str(self.tree), *inside, *command]
        done = subprocess.run(
            whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-3000:]}"


def build(folder: Path, bare: Path) -> Path:
    """Follow the file's steps in copies of a bare tree; return the tree of the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(bare)
    for word, value in instructions():
        if word == "FROM":
            name = value.partition(" AS ")[2] or "image"
            stage = stages[name] = Stage(folder / name)
            subprocess.run(["cp", "-a", "--reflink=auto", str(bare), str(stage.tree)], check=True)
            (stage.tree / "etc" / "resolv.conf").touch()
        elif word == "RUN":
            stage.run(["sh", "-c", value])
        elif word == "COPY":
            _copy(value.split(), stages, stage)
        elif word == "WORKDIR":
            stage.folder = value
            (stage.tree / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            pairs = (pair.partition("=") for pair in value.split())
            stage.environment |= {key: text for key, _, text in pairs if not text.startswith("$")}
    return stage.tree


def _copy(parts: list[str], stages: dict[str, Stage], stage: Stage) -> None:
    if parts[0].startswith("--from="):
        root, parts = stages[parts[0].removeprefix("--from=")].tree, parts[1:]
        _cp([root / parts[0].lstrip("/")], stage.tree / parts[1].lstrip("/"))
        return
    *sources, target = parts
    place = stage.tree / stage.folder.lstrip("/") / target.lstrip("/")
    for source in sources:
        for path in tracked(source):
            relative = path.relative_to(source) if str(path) != source else Path(path.name)
            to = place / relative
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, to)


def _cp(sources: Sequence[Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", *map(str, sources), str(target)], check=True)


def tracked(source: str) -> Iterator[Path]:
    """Yield the files of git, or new ones, at a path: what a clone has."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", source]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    yield from map(Path, done.stdout.splitlines())


def command(tree: Path, *arguments: str) -> list[str]:
    """Return a command that runs in the image; $STATE is its volume."""
    return [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=TERM",
        "sh",
        "-c",
        _ENTER_READ_ONLY,
        str(tree),
        *arguments,
    ]
