"""The librdkafka that the confluent-kafka wheel carries, and programs in C over it, which open it
by its path.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
from pathlib import Path

from bench import runs
from bench.validation import cells

HEADER = cells.HERE / "rdkafka.h"


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


def built(source: Path) -> Path:
    """Build the program of this .c file in build/bench."""
    program = runs.ROOT / "build" / "bench" / source.stem
    if program.exists() and program.stat().st_mtime > max(
        one.stat().st_mtime for one in (source, HEADER)
    ):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [
        *compiler,
        "-O2",
        "-pthread",
        "-I",
        str(HEADER.parent),
        "-o",
        str(program),
        str(source),
        "-ldl",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Missing(f"{compiler[0]}: {error.strerror}") from None
    if done.returncode:
        raise Missing(f"{source.name} cannot be built: {done.stderr.strip()[-400:]}")
    return program
