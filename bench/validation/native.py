"""Build the bench's own C with the host's compiler, load it, and read the counting allocator.

Programs over librdkafka open the library that the confluent-kafka wheel carries, by its path.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import runs
from bench.validation import cells

COUNTED = ("malloc", "calloc", "realloc", "memalign", "free", "mmap", "munmap", "bytes")


def compiler() -> list[str]:
    """Return CC, split: it may be several words, for example ccache gcc."""
    return shlex.split(os.environ.get("CC", "cc"))


def built(
    target: Path,
    sources: list[Path],
    *flags: str,
    after: tuple[str, ...] = (),
    headers: tuple[Path, ...] = (),
) -> Path:
    """Compile the target if a source, or a header next to it, is newer."""
    inputs = [
        *sources,
        *headers,
        *{header for source in sources for header in source.parent.glob("*.h")},
        cells.HERE / "probe.h",
    ]
    if target.exists() and target.stat().st_mtime >= max(path.stat().st_mtime for path in inputs):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [*compiler(), "-O3", *flags, "-o", str(unfinished), *map(str, sources), *after], check=True
    )
    unfinished.rename(target)
    return target


def load() -> ctypes.CDLL:
    return ctypes.CDLL(
        str(built(runs.BUILD / "native.so", [cells.HERE / "native.c"], "-shared", "-fPIC"))
    )


def counting_library() -> Path:
    return built(
        runs.BUILD / "counting.so",
        [cells.HERE / "counting" / "counting.c"],
        "-shared",
        "-fPIC",
        after=("-ldl",),
    )


def counting_environment() -> dict[str, str]:
    """Return an environment in which pymalloc passes each call on to malloc, so that all are
    counted.
    """
    return os.environ | {"LD_PRELOAD": str(counting_library()), "PYTHONMALLOC": "malloc"}


def allocation_counter() -> Callable[[Any, int], dict[str, Any]]:
    """Return a function that counts allocator calls and bytes of one execution of a job.

    Twice as many executions are counted a second time and the difference taken, so that what the
    counting itself allocates falls out.
    """

    def count(job: Any, calls: int) -> dict[str, Any]:
        if (
            "counting.so" not in os.environ.get("LD_PRELOAD", "")
            or os.environ.get("PYTHONMALLOC") != "malloc"
        ):
            raise RuntimeError("the counting allocator is not loaded (native.counting_environment)")
        import gc

        library = ctypes.CDLL(None)
        numbers = (ctypes.c_int64 * len(COUNTED))()
        names = dict(job.names)
        exec(f"def counted(again):\n    for _ in again:\n        {job.statement}", names)
        run = names["counted"]

        def total(n: int) -> list[int]:
            again = [None] * n
            library.counting_read(numbers)
            before = list(numbers)
            run(again)
            library.counting_read(numbers)
            return [b - a for a, b in zip(before, numbers, strict=True)]

        run([None])
        gc.disable()
        total(1)
        once, twice = total(calls), total(2 * calls)
        gc.enable()
        names.clear()  # the function and its globals are a cycle: what they hold shall not be freed at some later time
        per_call = {name: (b - a) / calls for name, a, b in zip(COUNTED, once, twice, strict=True)}
        obtained = sum(
            per_call[name] for name in ("malloc", "calloc", "realloc", "memalign", "mmap")
        )
        return {"allocations": round(obtained, 3), "per_call": per_call, "batches": job.batches}

    return count


# ---- librdkafka ----------------------------------------------------------------------------------


class Missing(RuntimeError):
    """No compiler, no confluent-kafka, or one without a library of its own."""


def library() -> Path:
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or found.origin is None:
        raise Missing("librdkafka comes with the package confluent-kafka, which is not installed")
    path = next(
        (Path(found.origin).parents[1] / "confluent_kafka.libs").glob("librdkafka-*.so*"), None
    )
    if path is None:
        raise Missing("this build of confluent-kafka does not carry its librdkafka")
    return path


def rdkafka_program(source: Path) -> Path:
    """Build the program of this .c file in build/bench."""
    flags = ("-O2", "-pthread", "-I", str(cells.HERE))
    headers = cells.HERE / "rdkafka.h"
    target = runs.BUILD / source.stem
    try:
        return built(target, [source], *flags, after=("-ldl",), headers=(headers,))
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{source.name} cannot be built: {error}") from None
