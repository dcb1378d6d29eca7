"""CPython for musl, compiled on this machine, in a tree that holds nothing else.

The tree has neither a shell nor a package manager: /lib/ld-musl-*.so.1 and /usr with CPython.
Debian's packages musl and musl-dev are unpacked into a folder, and gcc compiles and links with what
is there: this machine has no musl of its own afterwards. zlib and libffi are compiled from Debian's
sources. OpenSSL is that of a published musllinux wheel, with the headers of Debian's libssl-dev,
because compiling it takes longer than all else.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from tools import dist
from tools.trial.debian import WORK, Archive, unpack

SUITE = "bookworm"
#: the suites that have the sources of CPython; no current one has 3.12
CPYTHON_SUITES = {"3.11": "bookworm", "3.13": "trixie"}
#: its musl is 1.2.5, as Alpine has since 3.20. The published wheels of musllinux_1_2 need 1.2.4
#: for their relative relocations (RELR)
MUSL_SUITE = "trixie"
#: a published wheel that has OpenSSL's libraries in it
OPENSSL = "psycopg2-binary"
#: what cannot be found out without running a program for musl
ANSWERS = {
    "ac_cv_file__dev_ptmx": "yes",
    "ac_cv_file__dev_ptc": "no",
    "ac_cv_buggy_getaddrinfo": "no",
}


class Musl:
    """The compiler for one processor ("x86_64", "aarch64"), what it makes, and the tree."""

    def __init__(self, machine: str, version: str, jobs: int) -> None:
        self.machine, self.version, self.jobs = machine, version, jobs
        self.place = WORK / f"musl-{machine}-{version}"
        self.tree, self.libraries, self.musl = (
            self.place / name for name in ("tree", "libraries", "musl")
        )
        self.triple = f"{machine}-linux-musl"
        debian = {"x86_64": "amd64", "aarch64": "arm64"}[machine]
        self.archive, self.musl_archive = Archive(SUITE, debian), Archive(MUSL_SUITE, debian)
        self.cpython_archive = Archive(CPYTHON_SUITES[version], debian)
        self.compiler = str(self.place / "musl-gcc")
        self.environment = {
            **os.environ,
            "CC": self.compiler,
            # the OpenSSL that is linked has no compression
            "CFLAGS": "-O1 -g0 -fPIC -DOPENSSL_NO_COMP",
            "CPPFLAGS": f"-I{self.libraries / 'include'}",
            "LDFLAGS": f"-L{self.libraries / 'lib'}",
            "PKG_CONFIG": "false",
            # CPython's configure refuses the bare name in a cross build
            "READELF": shutil.which("readelf") or "readelf",
        }

    def make(self) -> Path:
        """Return the tree with CPython in it. Made once, then kept."""
        if (self.place / ".done").exists():
            return self.tree
        for folder in (
            self.tree / "lib",
            self.libraries / "include",
            self.libraries / "lib",
            self.place / "source",
        ):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        with dist.step(f"libraries for {self.triple}"):
            self._c_library()
            self._zlib()
            self._libffi()
            self._openssl()
        with dist.step(f"CPython {self.version} for {self.triple}"):
            self._cpython()
        (self.place / ".done").touch()
        return self.tree

    def _source(self, name: str) -> Path:
        return _extract(self.archive.source(name), self.place / "source")

    def _run(self, folder: Path, *command: str | Path) -> None:
        dist.run(*command, cwd=folder, env=self.environment)

    def _c_library(self) -> None:
        """Unpack musl for the compiler, and copy it to the tree: its loader is the C library."""
        shutil.rmtree(self.musl, ignore_errors=True)
        unpack(self.musl_archive.packages("musl", "musl-dev"), self.musl)
        folder = self.musl / "usr" / "lib" / self.triple
        shutil.copy2(folder / "libc.so", self.tree / "lib" / f"ld-musl-{self.machine}.so.1")
        # the kernel's headers, which musl does not have: libffi reads linux/limits.h
        unpack(self.archive.packages("linux-libc-dev"), self.place / "kernel")
        include = self.place / "kernel" / "usr" / "include"
        for headers in (include, *include.glob("*-linux-gnu")):
            shutil.copytree(
                headers, self.musl / "usr" / "include" / self.triple, dirs_exist_ok=True
            )
        specs = (folder / "musl-gcc.specs").read_text("ascii").replace("/usr/", f"{self.musl}/usr/")
        (self.musl / "musl-gcc.specs").write_text(specs, "ascii")
        self._compiler(f"-specs={self.musl / 'musl-gcc.specs'}", f"-L{folder}")

    def _compiler(self, *options: str) -> None:
        """Write the compiler's command: gcc with options, which names no multiarch folder.

        CPython would name its modules by that folder and read this machine's headers there. It adds
        gcc's own folders of libraries, too, so musl's must stand first.
        """
        gcc = "gcc" if self.machine == platform.machine() else f"{self.machine}-linux-gnu-gcc"
        command = [*(["ccache"] if shutil.which("ccache") else []), gcc, *options]
        quiet = 'case "$*" in -print-multiarch | --print-multiarch) exit ;; esac'
        script = Path(self.compiler)
        script.write_text(f'#!/bin/sh\n{quiet}\nexec {shlex.join(command)} "$@"\n', "utf-8")
        script.chmod(0o755)

    def _zlib(self) -> None:
        source = self._source("zlib")
        self._run(source, "./configure", "--static", f"--prefix={self.libraries}")
        self._run(source, "make", f"-j{self.jobs}", "libz.a")
        for name in ("zlib.h", "zconf.h"):
            shutil.copy2(source / name, self.libraries / "include")
        shutil.copy2(source / "libz.a", self.libraries / "lib")

    def _libffi(self) -> None:
        source = self._source("libffi")
        options = ["--disable-shared", "--disable-docs", "--disable-multi-os-directory"]
        self._run(
            source, "./configure", f"--host={self.triple}", f"--prefix={self.libraries}", *options
        )
        self._run(source, "make", f"-j{self.jobs}")
        self._run(source, "make", "install")

    def _openssl(self) -> None:
        """Take libssl and libcrypto from the wheel into the tree, and link with them there."""
        fetched = self.place / "openssl"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "download",
            "--no-deps",
        ]
        tags = ["--python-version", self.version, "--platform", f"musllinux_1_2_{self.machine}"]
        dist.run(*pip, "--only-binary=:all:", *tags, "--dest", fetched, OPENSSL)
        (wheel,) = fetched.glob("*.whl")
        folder = self.tree / "usr" / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if found := re.search(r"\.libs/((libssl|libcrypto)-\w+\.so\.3)$", name):
                    (folder / found[1]).write_bytes(archive.read(name))
                    shutil.copy2(folder / found[1], self.libraries / "lib" / f"{found[2]}.so")
        headers = self.place / "headers"
        unpack(self.archive.packages("libssl-dev"), headers)
        for include in (headers / "usr" / "include", *headers.glob("usr/include/*-linux-gnu")):
            shutil.copytree(
                include / "openssl", self.libraries / "include" / "openssl", dirs_exist_ok=True
            )

    def _cpython(self) -> None:
        tarball = self.cpython_archive.source(f"python{self.version}")
        own = build_python(self.version, tarball, self.jobs)
        source = _extract(tarball, self.place / "source")
        # a build system of musl, too: configure names the modules by it. The name differs from the
        # host's, so no program for musl is run
        build = f"--build={platform.machine()}-build-linux-musl"
        options = [f"--host={self.triple}", build, "--prefix=/usr"]
        options += [f"--with-build-python={own}", f"--with-openssl={self.libraries}"]
        options += ["--disable-test-modules", "--without-doc-strings", "--without-ensurepip"]
        self._run(
            source, "./configure", *options, *(f"{name}={value}" for name, value in ANSWERS.items())
        )
        self._run(source, "make", f"-j{self.jobs}")
        self._run(source, "make", "install", f"DESTDIR={self.tree}", "COMPILEALL_OPTS=--help")
        shutil.rmtree(source)


def _extract(tarball: Path, folder: Path) -> Path:
    """Unpack a tarball and return the folder in it."""
    with tarfile.open(tarball) as archive:
        top = archive.getmembers()[0].name.partition("/")[0]
        archive.extractall(folder, filter="data")
    return folder / top


def build_python(version: str, tarball: Path, jobs: int) -> str:
    """Return a CPython that runs here, compiled from a source: CPython's cross build runs it.

    Another patch version will not do: the build reads the library of the source.
    """
    folder = WORK / f"build-python-{version}"
    made = sorted(folder.glob("*/python"))
    if not made:
        source = _extract(tarball, folder)
        ccache = "ccache " if shutil.which("ccache") else ""
        with dist.step(f"CPython {version} for this machine"):
            dist.run(
                "./configure", f"CC={ccache}gcc", "CFLAGS=-O1 -g0", "PKG_CONFIG=false", cwd=source
            )
            dist.run("make", f"-j{jobs}", cwd=source)
        made = [source / "python"]
    return str(made[0])
