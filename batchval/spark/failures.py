"""Put Spark's errors into one line: a JVM's stderr, or an error with Java's and Python's traces."""

from __future__ import annotations

import re
from typing import Final

from batchval.segment.uris import without_secrets

__all__ = ["of_error", "of_log", "python_cause"]

_MAX_TEXT_LENGTH: Final = 500
_NOISE = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|WARNING: |Warning: |Using Spark's|Setting |To adjust|Picked up |\S+ \S+ (WARN|INFO) "
    r"|.*ERROR SparkContext: Error initializing"
)
_BEFORE = re.compile(
    r'(\S+ \S+ ERROR [\w.$]+: )?(Exception in thread "[^"]*" )?(Caused by: )?([\w$]+\.[\w.$]+: )?'
)
_JAVA = re.compile(r"^(?:: |Caused by: )[\w.$]+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*): (.*)$", re.MULTILINE)


def of_log(text: str) -> str:
    """Return the first line of a JVM's stderr that is not one of its usual messages."""
    telling = (
        _BEFORE.sub("", line.strip(), count=1)
        for line in text.splitlines()
        if not _NOISE.match(line)
    )
    return next((line[:_MAX_TEXT_LENGTH] for line in telling if line), "it says nothing")


def python_cause(text: str) -> tuple[str, str] | None:
    """Return class and text of the Python error that a worker reported, if one did."""
    _, found, trace = text.partition("Traceback (most recent call last):\n")
    errors = _PYTHON.findall(trace.partition("\n\tat ")[0]) if found else []
    return errors[-1] if errors else None


def of_error(error: BaseException) -> str:
    """Return the Python error of a task; else Java's error and its cause."""
    try:
        text = str(error)
    except Exception:  # py4j asks a JVM for the words, which may be gone
        return type(error).__name__
    if cause := python_cause(text):
        return without_secrets(f"{cause[0]}: {cause[1]}")[:_MAX_TEXT_LENGTH]
    errors = _JAVA.findall(text)
    if not errors:
        return (
            without_secrets(text.strip().partition("\n")[0])[:_MAX_TEXT_LENGTH]
            or type(error).__name__
        )
    first, last = errors[0].strip(), errors[-1].strip()
    return without_secrets(first if last in first else f"{first}: {last}")[:_MAX_TEXT_LENGTH]
