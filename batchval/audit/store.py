"""Where segments lie: this machine's disks, read by pread, or whatever pyarrow.fs reaches (s3://, gs://, hdfs://).

    <anything>/<topic>-<partition>/<base offset in 20 digits>.log      and beside it the .index of the same name
    <anything>/cleaner-offset-checkpoint                              names the partitions that the cleaner has been at

A path is a store's own name of a file; a URI names it everywhere, and is what travels to workers.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from batchval.errors import BatchvalError
from batchval.segment.reader import SegmentFile

__all__ = ["SegmentInfo", "Source", "Store", "Unreadable", "one_line"]

_SEGMENT = re.compile(r"\d{20}\.log")
_PARTITION = re.compile(r"(?s)(.+)-(\d{1,10})")
#: folders of logs that Kafka is about to delete, or is moving here from another disk
_NO_PARTITION = re.compile(r"(?s).+-\d+\.[0-9a-f]{32}-(delete|stray|future)")
_CHECKPOINT = "cleaner-offset-checkpoint"


class SegmentInfo(NamedTuple):
    """One segment as it was listed. ``cleaned``: the cleaner's checkpoint names the partition; None: there is none.

    ``partition`` is -1 and ``topic`` the folder's name where that is not ``<topic>-<partition>``.
    """

    uri: str
    topic: str
    partition: int
    base_offset: int
    size: int
    mtime_ns: int
    index_uri: str | None = None
    cleaned: bool | None = None


class Unreadable(NamedTuple):
    """What cannot be listed or read, with one line that says why."""

    uri: str
    reason: str


class Source(Protocol):
    """An open file. ``size`` is what it was when opened, and goes down when a read shows that it has shrunk."""

    size: int

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes; fewer at the file's end."""

    def close(self) -> None: ...


class _Entry(NamedTuple):
    path: str
    size: int
    mtime_ns: int


def one_line(error: BaseException) -> str:
    """What went wrong, without the line breaks that storage services like to send."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


class Store:
    """Files below one root. Small to pickle: a worker connects anew, when it first reads."""

    @staticmethod
    def of(uri: str) -> tuple[Store, str]:
        """The store that a URI or a local path lies in, and its path there. BatchvalError: a scheme nobody knows."""
        scheme = urlsplit(uri).scheme if "://" in uri else ""
        if scheme in ("", "file"):
            return _LOCAL, urlsplit(uri).path if scheme else uri
        raise BatchvalError(f"{uri}: unknown scheme {scheme}")

    def uri(self, path: str) -> str:
        """The name of a file of this store that holds wherever the store can be reached."""
        return os.path.abspath(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def open(self, path: str, *, accept_claims_header: bool = False) -> SegmentFile:
        """Raises OSError."""
        return SegmentFile(Path(path), accept_claims_header=accept_claims_header)

    def read_bytes(self, path: str) -> bytes:
        """A whole small file. Raises OSError."""
        return Path(path).read_bytes()

    def list_segments(self, path: str, topics: tuple[str, ...] | None = None) -> Iterator[SegmentInfo | Unreadable]:
        """Segments at or below a path, folder by folder, in the order of their offsets, with what cannot be listed.

        ``topics`` are names or patterns (``orders-*``).
        """
        empty = True
        for folder, entries in self._folders(path):
            if isinstance(entries, Unreadable):
                empty = False
                yield entries
                continue
            topic, partition = _partition_of(folder)
            segments = [entry for entry in entries if _SEGMENT.fullmatch(os.path.basename(entry.path))]
            if not segments or _NO_PARTITION.fullmatch(os.path.basename(folder)):
                continue
            empty = False
            if topics is not None and not any(fnmatch.fnmatchcase(topic, pattern) for pattern in topics):
                continue
            names = {entry.path for entry in entries}
            cleaned = self._cleaned(os.path.dirname(folder), topic, partition)
            for entry in segments:
                index = entry.path.removesuffix(".log") + ".index"
                yield SegmentInfo(
                    uri=self.uri(entry.path),
                    topic=topic,
                    partition=partition,
                    base_offset=int(os.path.basename(entry.path)[:20]),
                    size=entry.size,
                    mtime_ns=entry.mtime_ns,
                    index_uri=self.uri(index) if index in names else None,
                    cleaned=cleaned,
                )
        if empty:
            yield Unreadable(self.uri(path), "no segments in this folder")

    def _folders(self, path: str) -> Iterator[tuple[str, list[_Entry] | Unreadable]]:
        """Folders in order, each with its files in order."""
        try:
            found = os.stat(path)
        except OSError as error:
            yield path, Unreadable(path, one_line(error))
            return
        if not stat.S_ISDIR(found.st_mode):
            yield from self._file(path, found)
            return
        problems: list[OSError] = []
        for folder, below, names in os.walk(path, onerror=problems.append):
            below.sort()
            entries = []
            for name in sorted(names):
                file = os.path.join(folder, name)
                try:
                    about = os.stat(file)
                except OSError as error:
                    if _SEGMENT.fullmatch(name):
                        yield folder, Unreadable(file, one_line(error))
                    continue
                entries.append(_Entry(file, about.st_size, about.st_mtime_ns))
            yield os.path.abspath(folder), entries
        for problem in problems:
            yield str(problem.filename), Unreadable(str(problem.filename), one_line(problem))

    def _file(self, path: str, found: os.stat_result) -> Iterator[tuple[str, list[_Entry] | Unreadable]]:
        if not _SEGMENT.fullmatch(os.path.basename(path)):
            yield path, Unreadable(path, "not a segment: its name must be a base offset of 20 digits and .log")
            return
        entries = [_Entry(path, found.st_size, found.st_mtime_ns)]
        index = path.removesuffix(".log") + ".index"
        if os.path.isfile(index):
            entries.append(_Entry(index, os.stat(index).st_size, 0))
        yield os.path.dirname(os.path.abspath(path)), entries

    def _cleaned(self, folder: str, topic: str, partition: int) -> bool | None:
        try:
            lines = self.read_bytes(os.path.join(folder, _CHECKPOINT)).decode().splitlines()
        except (OSError, UnicodeDecodeError):
            return None
        return any(line.split()[:2] == [topic, str(partition)] for line in lines[2:])


def _partition_of(folder: str) -> tuple[str, int]:
    name = os.path.basename(folder)
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match and int(match[2]) < 1 << 31 else (name, -1)


_LOCAL = Store()
