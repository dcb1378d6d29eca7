"""Build the Cython core. All metadata is in pyproject.toml.

BATCHVAL_BUILD=release   (default) -O3, hardened; without debugging information, which would take a
                         quarter of the time to build
BATCHVAL_BUILD=trace     line tracing, for coverage of the .pyx files (never benched)
BATCHVAL_BUILD=asan      AddressSanitizer; needs LD_PRELOAD=$(cc -print-file-name=libasan.so)
BATCHVAL_BUILD=ubsan     UndefinedBehaviorSanitizer, each finding aborts
BATCHVAL_BUILD=none      the Python files alone, for editable installs (make installs the package
                         so, and builds the modules in place); refuses to build a wheel

SOURCE_DATE_EPOCH sets the times in sdists and wheels: two builds of one source have equal bytes.
"""

import gzip
import os
import sysconfig
import tarfile
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

BUILD = os.environ.get("BATCHVAL_BUILD", "release")
PLATFORM = sysconfig.get_platform()  # the target, also when a wheel is cross-compiled
IS_LINUX = PLATFORM.startswith("linux")
#: Control flow is checked by the processor: Intel's CET, ARM's pointer authentication and BTI.
BRANCHES = {"x86_64": ["-fcf-protection=full"], "aarch64": ["-mbranch-protection=standard"]}
RELEASE = [
    *("-O3", "-g0", "-fno-semantic-interposition", "-fvisibility=hidden"),
    *("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    # all symbols are bound at once, so a call needs no way through the PLT, and none of its
    # instructions
    *([*BRANCHES.get(PLATFORM.rpartition("-")[2], []), "-fno-plt"] if IS_LINUX else []),
    # errors of GCC 14 and later: older compilers must find them too. Clang has no name of its own
    # for discarded qualifiers
    "-Werror=incompatible-pointer-types",
    *("-Werror=discarded-qualifiers", "-Wno-unknown-warning-option"),
    "-Werror=implicit-function-declaration",
    "-Werror=int-conversion",
]
FLAGS = {
    "release": RELEASE,
    "trace": ["-O1", "-DCYTHON_TRACE=1", "-DCYTHON_TRACE_NOGIL=1"],
    "asan": ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"],
    "ubsan": [
        "-O1",
        "-g",
        "-fsanitize=undefined",
        "-fno-sanitize-recover=all",
        "-fno-sanitize=alignment",
    ],
}
LINK = {"asan": ["-fsanitize=address"], "ubsan": ["-fsanitize=undefined"]}
if IS_LINUX:
    # Debian's crti.o is not marked for CET, and one unmarked object unmarks the whole module. C
    # without constructors needs no start files.
    LINK["release"] = ["-Wl,-z,relro,-z,now,-z,noexecstack", "-nostartfiles"]
if BUILD not in {*FLAGS, "none"}:
    raise SystemExit(f"BATCHVAL_BUILD must be one of {', '.join(FLAGS)} or none, not {BUILD!r}")

# own C is compiled into the extension of the .pyx that declares it
OWN_C = {
    "batchval/core/format/crc32c.pyx": ["batchval/core/format/crc_kernels.c"],
    "batchval/core/codecs/gzip.pyx": ["batchval/core/codecs/inflate.c"],
}


def extensions() -> list[Extension]:
    """Return one extension for each .pyx file. SystemExit where there are none."""
    if BUILD == "none":
        return []
    sources = sorted(str(path) for path in Path("batchval").rglob("*.pyx"))
    if not sources:
        raise SystemExit(
            "batchval cannot be built: batchval/ holds 0 .pyx files. Build from a git clone or a "
            "complete sdist; BATCHVAL_BUILD=none makes an editable install without modules"
        )
    # other flags, other modules
    depends = [
        "setup.py",
        *(str(p) for p in Path("batchval").rglob("*.[ph]*") if p.suffix in {".pxd", ".h"}),
    ]
    return [
        Extension(
            path.removesuffix(".pyx").replace("/", "."),
            [path, *OWN_C.get(path, [])],
            extra_compile_args=FLAGS[BUILD],
            extra_link_args=LINK.get(BUILD, []),
            depends=depends,
        )
        for path in sources
    ]


class BuildModules(build_ext):
    """Translate the .pyx files when modules are built, not when an sdist is."""

    def run(self) -> None:
        """Build all modules. Those of a wheel are stripped; a tree's keep their symbols for
        valgrind and perf.
        """
        # setuptools unsets inplace while it builds
        self.strips = BUILD == "release" and not self.inplace
        super().run()

    def build_extensions(self) -> None:
        """Translate and compile all modules."""
        from Cython.Build import cythonize

        # some interpreters link everything with their own folder as a run path
        self.compiler.linker_so = [
            one for one in self.compiler.linker_so if not one.startswith(("-Wl,-rpath", "-Wl,-R"))
        ]
        translated = cythonize(
            self.extensions,
            # no build_dir: with one, Cython.Coverage drops every .pyx in silence
            language_level=3,
            emit_linenums=BUILD in {"asan", "ubsan"},
            compiler_directives={
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
                "embedsignature": True,
                "linetrace": BUILD == "trace",
            },
            force=bool(os.environ.get("BATCHVAL_FORCE")),
            nthreads=os.cpu_count() or 1,
        )
        sources = {one.name: one.sources for one in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
            if self.strips:
                extension.extra_link_args = [
                    *extension.extra_link_args,
                    "-s" if IS_LINUX else "-Wl,-x",
                ]
        super().build_extensions()


class BuildWheel(bdist_wheel):
    """A wheel has its modules."""

    def run(self) -> None:
        """Build the wheel. SystemExit where it would have no modules."""
        if not self.distribution.ext_modules:
            raise SystemExit(
                f"a wheel without its extension modules does not work: BATCHVAL_BUILD is "
                f"{BUILD!r}, for editable installs; leave it out, or set it to release"
            )
        super().run()


class BuildSources(sdist):
    """An sdist with equal bytes from equal sources: fixed order, owners, modes and times."""

    def make_archive(
        self, base_name: str, format: str, root_dir=None, base_dir=None, owner=None, group=None
    ) -> str:
        """Write the .tar.gz of a folder and return its name."""
        if format != "gztar":
            raise SystemExit(f"the source distribution is a .tar.gz (gztar), not {format}")
        when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        target = f"{base_name}.tar.gz"

        def normal(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = when
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            return info

        with (
            open(target, "wb") as file,
            gzip.GzipFile("", "wb", mtime=when, fileobj=file) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            # setuptools links files into the folder: each is to be a file
            archive.dereference = True
            for path in sorted(p for p in Path(base_dir).rglob("*") if p.is_file()):
                info = archive.gettarinfo(path, path.as_posix())
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
                with path.open("rb") as source:
                    archive.addfile(normal(info), source)
        return target


setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildModules, "bdist_wheel": BuildWheel, "sdist": BuildSources},
)
