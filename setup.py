"""Builds the Cython core. All metadata is in pyproject.toml.

BATCHVAL_BUILD=release   (default) -O3, without debugging information, which would take a quarter of the time to build
BATCHVAL_BUILD=trace     line tracing, for coverage of the .pyx files (never benched)
BATCHVAL_BUILD=asan      AddressSanitizer; run Python with LD_PRELOAD=$(cc -print-file-name=libasan.so)
BATCHVAL_BUILD=ubsan     UndefinedBehaviorSanitizer, each finding aborts
BATCHVAL_BUILD=none      the Python files alone (make installs them so, and builds the modules in place itself)
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BUILD = os.environ.get("BATCHVAL_BUILD", "release")
FLAGS = {
    "release": ["-O3", "-g0", "-fno-semantic-interposition", "-fstack-protector-strong"],
    "trace": ["-O1", "-DCYTHON_TRACE=1", "-DCYTHON_TRACE_NOGIL=1"],
    "asan": ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"],
    "ubsan": ["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-fno-sanitize=alignment"],
}
LINK = {"asan": ["-fsanitize=address"], "ubsan": ["-fsanitize=undefined"]}
if BUILD not in {*FLAGS, "none"}:
    raise SystemExit(f"BATCHVAL_BUILD must be one of {', '.join(FLAGS)} or none, not {BUILD!r}")

# own C is compiled into the extension of the .pyx that declares it
OWN_C = {
    "batchval/core/crc32c.pyx": ["batchval/core/crc_kernels.c"],
    "batchval/core/gzip.pyx": ["batchval/core/inflate.c"],
}


def extension(path: str) -> Extension:
    return Extension(
        path.removesuffix(".pyx").replace("/", "."),
        [path, *OWN_C.get(path, [])],
        extra_compile_args=FLAGS.get(BUILD, []),
        extra_link_args=LINK.get(BUILD, []),
        depends=[str(p) for p in Path("batchval").rglob("*.[ph]*") if p.suffix in {".pxd", ".h"}],
    )


setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=BUILD != "none"
    and cythonize(
        [extension(str(path)) for path in sorted(Path("batchval").rglob("*.pyx"))],
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
    ),
)
