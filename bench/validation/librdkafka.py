"""The librdkafka that the confluent-kafka wheel carries, and programs in C over it, which open it
by its path.
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

from bench import runs
from bench.validation import cells, native


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
    flags = ("-O2", "-pthread", "-I", str(cells.HERE))
    headers = cells.HERE / "rdkafka.h"
    target = runs.BUILD / source.stem
    try:
        return native.built(target, [source], *flags, after=("-ldl",), headers=(headers,))
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{source.name} cannot be built: {error}") from None
