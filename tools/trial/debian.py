"""Packages and sources of Debian's archive, and bare trees, without a change to this machine.

apt-get runs with lists, a cache and a status of its own, and checks the archive's signatures.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools import dist

WORK = dist.ROOT / "build" / "trial"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
#: none of them may be in a bare tree
BUILD_TOOLS = ("cc", "gcc", "g++", "c++", "clang", "tcc", "ld", "as", "make", "cython")


class Archive:
    """One suite of the archive for one processor. Files are kept in build/trial/apt."""

    def __init__(self, suite: str, architecture: str) -> None:
        self.place = WORK / "apt" / f"{suite}-{architecture}"
        self.suite, self.architecture = suite, architecture
        self.updated = False

    def packages(self, *names: str) -> list[Path]:
        """Return the .deb files of packages, without what they depend on."""
        return [self._kept(name, f"{name}_*.deb", "download", name) for name in names]

    def source(self, name: str) -> Path:
        """Return the tarball of a source package as its authors published it."""
        return self._kept(name, f"{name}_*.orig.tar.*[z2]", "source", "--download-only", name)

    def closure(self, *names: str) -> list[Path]:
        """Return the .deb files of packages and of all that they depend on."""
        done = self.place / f".{'-'.join(names)}"
        if not done.exists():
            self._apt("install", "--yes", "--no-install-recommends", "--download-only", *names)
            done.touch()
        return sorted((self.place / "cache" / "archives").glob("*.deb"))

    def _kept(self, name: str, pattern: str, *command: str) -> Path:
        if not list(self.place.glob(pattern)):
            self._apt(*command)
        found = sorted(self.place.glob(pattern))
        if not found:
            raise dist.DistError(f"Debian {self.suite} has no {name}: {' '.join(command)}")
        return found[-1]

    def _apt(self, *words: str) -> None:
        options = {
            "Dir::Etc::SourceList": self.place / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self.place / "lists",
            "Dir::State::Status": self.place / "status",
            "Dir::Cache": self.place / "cache",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "root",  # apt's own user cannot read a home directory
        }
        command = [
            "apt-get",
            "-qq",
            *(part for key, value in options.items() for part in ("-o", f"{key}={value}")),
        ]
        if not self.updated:  # lists of an earlier run may name files that the archive dropped
            for folder in ("lists/partial", "cache/archives/partial"):
                (self.place / folder).mkdir(parents=True, exist_ok=True)
            line = f"[signed-by={KEYRING}] {MIRROR} {self.suite} main\n"
            (self.place / "sources.list").write_text(f"deb {line}deb-src {line}", "utf-8")
            (self.place / "status").touch()
            dist.run(*command, "update", cwd=self.place)
            self.updated = True
        dist.run(*command, *words, cwd=self.place)


def unpack(packages: list[Path], tree: Path) -> None:
    """Unpack .deb files into a folder. Nothing is installed, no script of a package runs."""
    tree.mkdir(parents=True, exist_ok=True)
    for package in packages:
        dist.run("dpkg-deb", "--extract", package, tree)


def bare_tree(suite: str) -> Path:
    """Return the tree of a suite: Debian's smallest system with its Python. Made once, kept."""
    tree = WORK / "trees" / suite
    if not tree.is_dir():
        fresh = tree.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.parent.mkdir(parents=True, exist_ok=True)
        dist.run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv",
            suite,
            fresh,
            MIRROR,
        )
        fresh.rename(tree)
    folders = [tree / "usr" / "bin", tree / "usr" / "local" / "bin", tree / "usr" / "sbin"]
    if found := [
        name for name in BUILD_TOOLS if any((folder / name).exists() for folder in folders)
    ]:
        raise dist.DistError(
            f"the tree of {suite} has {', '.join(found)}: a bare tree has no build tools"
        )
    return tree
