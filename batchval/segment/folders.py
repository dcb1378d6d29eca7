"""Folders of segments as Kafka lays them out, on this machine, and the small files next to the
segments.

    <anything>/<topic>-<partition>/<base offset in 20 digits>.log and the .index of the same name
    <anything>/cleaner-offset-checkpoint names the partitions that the cleaner has rewritten
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from batchval.segment.reader import SegmentReader

__all__ = [
    "PAUSE_S",
    "ROUNDS",
    "ListedFile",
    "cleaned_partitions",
    "properties",
    "read_small",
    "walk",
]

#: times that a partition is listed again, because a broker changes it, before it is taken as it is
ROUNDS = 6
#: seconds before it is listed again, doubled each time: Kafka writes some files later than the log
PAUSE_S = 0.1
_SEGMENT_OR_INDEX = re.compile(r"\d{20}\.(log|index)")
_SMALL = 64 << 20  # Kafka's indexes have up to 10 MiB by default (segment.index.bytes)


class ListedFile(NamedTuple):
    """A file of a folder, by the store's own name of it."""

    path: str
    size: int
    mtime_ns: int
    inode: int = 0

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def walk(folder: str, problems: list[OSError]) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and all below it in order, each with the names of its files in order.

    ``problems`` gets what cannot be listed.

    Links are followed, but no folder is walked twice: neither in a loop nor because two links lead
    there.
    """
    seen: set[tuple[int, int]] = set()
    _is_new(folder, seen)

    def note(problem: OSError) -> None:
        if os.path.lexists(problem.filename):  # else deleted after its parent was listed
            problems.append(problem)

    for place, below, names in os.walk(folder, onerror=note, followlinks=True):
        # a folder of such a name is listed: the reader reports the error
        names += [name for name in below if _SEGMENT_OR_INDEX.fullmatch(name)]
        below[:] = [name for name in sorted(below) if _is_new(os.path.join(place, name), seen)]
        yield place, sorted(names)


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    try:
        about = os.stat(folder)
    except OSError:
        return True  # the walk reports the error
    place = about.st_dev, about.st_ino
    return place not in seen and not seen.add(place)  # type: ignore[func-returns-value]


def read_small(file: SegmentReader) -> bytes:
    """Return a whole small file, such as an index. Raises OSError for a large one: a file's name
    must not decide how much memory is used.
    """
    if file.size > _SMALL:
        raise OSError(errno.EFBIG, f"{file.size:,} bytes are too many for such a file")
    return bytes(file.read(0, file.size))


def cleaned_partitions(checkpoint: bytes) -> frozenset[tuple[str, str]]:
    """Return the topics and partitions (both as text) that a checkpoint names. Raises
    UnicodeDecodeError.
    """
    words = (line.split()[:2] for line in checkpoint.decode().splitlines()[2:])
    return frozenset((pair[0], pair[1]) for pair in words if len(pair) == 2)


def properties(data: bytes) -> dict[str, str]:
    """Return the entries of a Java properties file, without its escapes."""
    pairs = (
        line.partition("=")
        for line in data.decode("latin-1").splitlines()
        if not line.startswith("#")
    )
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}
