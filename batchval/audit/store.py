"""Where segments lie: this machine's disks, read by pread, or whatever pyarrow.fs reaches (s3://, gs://, hdfs://).

    <anything>/<topic>-<partition>/<base offset in 20 digits>.log      and beside it the .index of the same name
    <anything>/cleaner-offset-checkpoint                              names the partitions that the cleaner has been at

A path is a store's own name of a file; a URI names it everywhere, and is what travels to workers.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from batchval.errors import BatchvalError
from batchval.segment.folders import CHECKPOINT, SEGMENT_NAME, cleaned_partitions, read_small, walk
from batchval.segment.reader import LocalFile, SegmentReader, Source

__all__ = ["SegmentInfo", "Source", "Store", "Unreadable", "folder_and_name", "one_line", "shown", "text_of"]

_PARTITION = re.compile(r"(?s)(.+)-(\d{1,10})")
#: folders of logs that Kafka is about to delete, or is moving here from another disk
_NO_PARTITION = re.compile(r"(?s).+-\d+\.[0-9a-f]{32}-(delete|stray|future)")
_REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_START_OF_A_BATCH = 17  # bytes: offset:8 size:4 crc or epoch:4 magic:1
_CREDENTIALS = re.compile(r"://[^/@\s]*@")


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


class _Entry(NamedTuple):
    path: str
    size: int
    mtime_ns: int


#: a folder with its files, or what is wrong with it
_Folder = tuple[str, "list[_Entry] | Unreadable"]


def text_of(name: str) -> str:
    """A name as text that can be stored: bytes that are none are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def shown(uri: str) -> str:
    """A URI without the credentials that may stand in it."""
    return _CREDENTIALS.sub("://", uri)


def folder_and_name(uri: str) -> tuple[str, str]:
    """Of what Store.uri gives: a query stands behind the name of a file, and goes with the folder."""
    path, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    folder, _, name = path.rpartition("/")
    return folder + mark + query, name


def one_line(error: BaseException) -> str:
    """What went wrong, without the line breaks and the credentials that storage services like to send."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return shown(" ".join(text.split())) or type(error).__name__


class Store:
    """Files below one root. Small to pickle: a worker connects anew when it first reads. Failures are OSErrors."""

    #: may files be appended to? Objects of a store may not
    grows = False

    @staticmethod
    def of(uri: str) -> tuple[Store, str]:
        """The store that a URI or a local path lies in, and its path there. BatchvalError: a scheme nobody knows."""
        scheme = urlsplit(uri).scheme if "://" in uri else ""
        if not scheme:
            return _LOCAL, uri
        parts = urlsplit(uri)
        if scheme == "file":
            return _LOCAL, unquote(parts.path)
        if scheme not in _REMOTE:
            known = ", ".join(f"{name}://" for name in ("file", *_REMOTE))
            raise BatchvalError(f"{shown(uri)}: unknown scheme; known are paths and {known}")
        in_path = scheme in ("s3", "gs", "gcs", "abfs", "abfss")  # pyarrow's path begins with the bucket
        host = parts.netloc.rpartition("@")[2]
        path = unquote(parts.path)
        return _Remote(scheme, parts.netloc, parts.query), f"{host}{path}".rstrip("/") if in_path else path

    def uri(self, path: str) -> str:
        """The name of a file of this store that holds wherever the store can be reached."""
        raise NotImplementedError

    def size(self, path: str) -> int:
        """In bytes."""
        raise NotImplementedError

    def source(self, path: str) -> Source:
        """Opens a file for the walk of a SegmentReader, which closes it."""
        raise NotImplementedError

    def open(self, path: str, *, accept_claims_header: bool = False) -> SegmentReader:
        """A context manager with ``.read(position, size)`` and ``.size``, and the walk over its batches."""
        return SegmentReader(self.source(path), accept_claims_header=accept_claims_header)

    def read_bytes(self, path: str) -> bytes:
        """A whole small file, such as an index. OSError also for one that is none: its name buys no memory."""
        with self.open(path) as file:
            return read_small(file)

    def list_segments(self, path: str, topics: tuple[str, ...] | None = None) -> Iterator[SegmentInfo | Unreadable]:
        """Segments at or below a path, folder by folder, in the order of their offsets, with what cannot be listed.

        ``topics`` are names or patterns (``orders-*``).
        """
        empty = True
        cleaned_in: dict[str, frozenset[tuple[str, str]] | None] = {}
        for folder, entries in self._folders(path):
            if isinstance(entries, Unreadable):
                empty = False
                yield entries
                continue
            segments = [entry for entry in entries if SEGMENT_NAME.fullmatch(os.path.basename(entry.path))]
            if not segments or _NO_PARTITION.fullmatch(os.path.basename(folder)):
                continue
            empty = False
            topic, partition = _partition_of(folder)
            if topics is not None and not any(fnmatch.fnmatchcase(topic, pattern) for pattern in topics):
                continue
            names = {entry.path for entry in entries}
            parent = os.path.dirname(folder)
            if parent not in cleaned_in:
                cleaned_in[parent] = self._cleaned(parent)
            those = cleaned_in[parent]
            cleaned = None if those is None else (topic, str(partition)) in those
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
            yield Unreadable(shown(self.uri(path)), "no segments in this folder")

    def _folders(self, path: str) -> Iterator[_Folder]:
        """Folders in order, each with its files in order."""
        raise NotImplementedError

    def _cleaned(self, folder: str) -> frozenset[tuple[str, str]] | None:
        """The partitions that a folder's checkpoint names: read once, not for each of them."""
        try:
            return cleaned_partitions(self.read_bytes(os.path.join(folder, CHECKPOINT)))
        except (OSError, UnicodeDecodeError):
            return None


def _partition_of(folder: str) -> tuple[str, int]:
    name = text_of(os.path.basename(folder))
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match and int(match[2]) < 1 << 31 else (name, -1)


_NO_SEGMENT = "not a segment: its name must be a base offset of 20 digits and .log"


class _Local(Store):
    grows = True

    def uri(self, path: str) -> str:
        return os.path.abspath(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def source(self, path: str) -> Source:
        return LocalFile(Path(path))

    def _folders(self, path: str) -> Iterator[_Folder]:
        path = os.path.abspath(path)
        try:
            found = os.stat(path)
        except OSError as error:
            yield path, Unreadable(path, one_line(error))
            return
        if not stat.S_ISDIR(found.st_mode):
            if not SEGMENT_NAME.fullmatch(os.path.basename(path)):
                yield path, Unreadable(path, _NO_SEGMENT)
                return
            names = [os.path.basename(path), os.path.basename(path).removesuffix(".log") + ".index"]
            yield from self._entries(os.path.dirname(path), names)
            return
        problems: list[OSError] = []
        for folder, names in walk(path, problems):
            yield from self._entries(folder, names)
        for problem in problems:
            yield str(problem.filename), Unreadable(str(problem.filename), one_line(problem))

    def _entries(self, folder: str, names: list[str]) -> Iterator[_Folder]:
        entries = []
        for name in names:
            file = os.path.join(folder, name)
            try:
                about = os.stat(file)
            except OSError as error:
                if SEGMENT_NAME.fullmatch(name):
                    yield folder, Unreadable(file, one_line(error))
                continue
            entries.append(_Entry(file, about.st_size, about.st_mtime_ns))
        yield folder, entries


_LOCAL = _Local()


@functools.lru_cache(maxsize=32)
def _connected(uri: str) -> Any:
    """One connection a process; pyarrow's connections are for many threads."""
    with _as_os_errors():
        return fs.FileSystem.from_uri(uri)[0]


class _as_os_errors:
    """pyarrow says ArrowInvalid for some of what a storage service does; readers know OSErrors."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            raise OSError(one_line(error)) from error


class _RemoteFile:
    """An object or file that is read by ranges; what a request costs makes blocks large."""

    chunk = 4 << 20

    def __init__(self, connection: Any, path: str) -> None:
        with _as_os_errors():
            self._file = connection.open_input_file(path)
            self.size = int(self._file.size())

    def read_into(self, position: int, memory: memoryview) -> int:
        if position >= self.size:
            return 0  # an object does not grow
        with _as_os_errors():
            self._file.seek(position)
            return int(self._file.readinto(memory[: self.size - position]))

    def header(self, position: int) -> bytes:
        memory = memoryview(bytearray(_START_OF_A_BATCH))
        return bytes(memory[: self.read_into(position, memory)])

    def behind_hole(self, position: int) -> int:
        """A store does not tell."""
        return position

    def close(self) -> None:
        with _as_os_errors():
            self._file.close()


@dataclass(frozen=True)
class _Remote(Store):
    scheme: str
    host: str  # with credentials, if they were given so
    query: str  # pyarrow's: region, endpoint_override and others

    @property
    def _fs(self) -> Any:
        return _connected(urlunsplit((self.scheme, self.host, "/", self.query, "")))

    def uri(self, path: str) -> str:
        host = self.host.rpartition("@")[2]
        if self.scheme not in ("hdfs", "viewfs"):
            path = path.removeprefix(host)
        return urlunsplit((self.scheme, self.host, quote(path), self.query, ""))

    def size(self, path: str) -> int:
        with _as_os_errors():
            info = self._fs.get_file_info(path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{shown(self.uri(path))}: no such file")
        return int(info.size)

    def source(self, path: str) -> Source:
        return _RemoteFile(self._fs, path)

    def _folders(self, path: str) -> Iterator[_Folder]:
        try:
            with _as_os_errors():
                about = self._fs.get_file_info(path)
                if about.type == fs.FileType.File:
                    index = path.removesuffix(".log") + ".index"
                    files = [about, self._fs.get_file_info(index)]
                else:
                    files = self._fs.get_file_info(fs.FileSelector(path, recursive=True))
        except OSError as error:
            yield path, Unreadable(shown(self.uri(path)), one_line(error))
            return
        if about.type == fs.FileType.File and not SEGMENT_NAME.fullmatch(about.base_name):
            yield path, Unreadable(shown(self.uri(path)), _NO_SEGMENT)
            return
        folders: dict[str, list[_Entry]] = defaultdict(list)
        for file in files:
            if file.type == fs.FileType.File:
                folders[os.path.dirname(file.path)].append(_Entry(file.path, int(file.size), int(file.mtime_ns or 0)))
        for folder in sorted(folders):
            yield folder, sorted(folders[folder])
