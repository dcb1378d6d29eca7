"""Stores of segments: the disks of this machine, read by pread, or those that pyarrow.fs reaches
(through remote.py).

    <log folder>/<topic>-<partition>/<base offset in 20 digits>
                                      .log .index .timeindex .txnindex .snapshot
    <log folder>/<topic>-<partition>/ leader-epoch-checkpoint, partition.metadata
    <log folder>/                     cleaner-offset-, recovery-point-offset-, replication-offset-
                                      and log-start-offset-checkpoint
    <log folder>/meta.properties      node.id and cluster.id

A path is a store's own name of a file. A URI names it everywhere, and is what travels to workers.

The checkpoints of a log folder are read before the folders of its partitions are listed, so none of
them is newer than the segments that it describes.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlunsplit

from batchval.errors import BatchvalError
from batchval.segment.aux_files import Malformed, offsets_of
from batchval.segment.file_names import (
    CHECKPOINTS,
    CLEANER_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_FILES,
    SEGMENT_NAME,
)
from batchval.segment.folders import ListedFile, cleaned_partitions, properties, read_small, walk
from batchval.segment.reader import LocalFile, SegmentReader, Source
from batchval.segment.tiered import MANIFEST, is_tiered, partition_of, transformation
from batchval.segment.uris import one_line, plain_uri, refusal, root_of, shown, split

if TYPE_CHECKING:
    from batchval.segment.remote import RemoteFiles

__all__ = [
    "NOT_A_SEGMENT",
    "SIDE_SUFFIXES",
    "Checkpoints",
    "ListedFile",
    "ListedFolder",
    "LogFolder",
    "SegmentInfo",
    "SideFile",
    "Source",
    "Store",
    "Unreadable",
    "folder_and_name",
    "one_line",
    "shown",
    "sibling",
    "text_of",
    "with_place",
]

_PARTITION = re.compile(r"(?s)(.+)-(\d{1,10})")
#: folders of logs that Kafka is about to delete, or is moving here from another disk
_NO_PARTITION = re.compile(r"(?s).+-\d+\.[0-9a-f]{32}-(delete|stray|future)")
#: files that Kafka writes for each segment, next to it
SIDE_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
_SNAPSHOT = re.compile(r"\d{20}\.snapshot")
#: files that stand in a folder while the cleaner or retention is at work there
_IN_FLUX = re.compile(r".*\.(cleaned|swap|deleted)")
_INTERNAL_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class SideFile(NamedTuple):
    """A file of Kafka's next to a segment, as it was listed. Bytes; nanoseconds since the epoch."""

    name: str
    size: int
    mtime_ns: int


class Checkpoints(dict[str, int]):
    """Offsets of one partition in the checkpoints of a log folder, by the file's name.

    ``broken``: files that cannot be read, with the reason. Equal to any other, because a broker
    writes them all the time.
    """

    broken: tuple[tuple[str, str], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoints)

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


class SegmentInfo(NamedTuple):
    """One segment as it was listed. Two that are equal have not changed in between.

    ``partition`` is -1 and ``topic`` the folder's name where that is not ``<topic>-<partition>``.

    ``inode``     the file's identity on this machine; 0 where a store has none
    ``sides``     its .index, .timeindex, .txnindex and .snapshot; the first segment of a folder has
                  the partition's own files too
    ``cleaned``   whether the cleaner's checkpoint names the partition; None: no checkpoint
    ``is_last``   no segment of the folder has a higher base offset: a broker may be writing it
    ``checkpoints``  of the partition, at its first segment
    ``in_flux``   the folder holds files of a cleaning or deletion that is under way
    """

    uri: str
    topic: str
    partition: int
    base_offset: int
    size: int
    mtime_ns: int
    inode: int = 0
    sides: tuple[SideFile, ...] = ()
    cleaned: bool | None = None
    is_last: bool = False
    in_flux: bool = False
    broker: str | None = None
    cluster: str | None = None
    checkpoints: Checkpoints = Checkpoints()

    def side_uri(self, suffix: str) -> str | None:
        """Return the URI of the side file whose name ends so; None where none was listed."""
        for side in self.sides:
            if side.name.endswith(suffix):
                return sibling(self.uri, side.name)
        return None

    @property
    def is_tiered(self) -> bool:
        """Return whether the segment lies in tiered storage, to which a broker copies closed
        segments.
        """
        return is_tiered(folder_and_name(self.uri)[1])

    @property
    def index_uri(self) -> str | None:
        """Return the URI of the offset index."""
        return self.side_uri(".index")


class Unreadable(NamedTuple):
    """A file or folder that cannot be listed or read, with the reason as one line."""

    uri: str
    reason: str


@dataclass(frozen=True)
class LogFolder:
    """The small files of a log folder, as bytes by name."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    @functools.cached_property
    def cleaned(self) -> frozenset[tuple[str, str]] | None:
        """Return the partitions that the cleaner's checkpoint names; None where it cannot be
        read.
        """
        try:
            return cleaned_partitions(self.files[CLEANER_CHECKPOINT])
        except (KeyError, UnicodeDecodeError):
            return None

    @functools.cached_property
    def meta(self) -> Mapping[str, str]:
        """Return the entries of meta.properties."""
        return properties(self.files.get(META_PROPERTIES, b""))

    @functools.cached_property
    def offsets(self) -> Mapping[str, Mapping[tuple[str, int], int] | str]:
        """Return the offsets of each checkpoint, or what is wrong with it."""
        found: dict[str, Mapping[tuple[str, int], int] | str] = {}
        for name in CHECKPOINTS:
            if name in self.files:
                try:
                    found[name] = offsets_of(self.files[name])
                except Malformed as error:
                    found[name] = str(error)
        return found

    def checkpoints(self, topic: str, partition: int) -> Checkpoints:
        """Return the checkpoints of a partition."""
        found = Checkpoints()
        for name, offsets in self.offsets.items():
            if isinstance(offsets, str):
                found.broken += ((name, offsets),)
            elif (topic, partition) in offsets:
                found[name] = offsets[topic, partition]
        return found

    def was_cleaned(self, topic: str, partition: int) -> bool | None:
        """Return whether the cleaner has rewritten a partition; None if that is unknown."""
        if topic in _INTERNAL_COMPACTED:
            return True
        return None if self.cleaned is None else (topic, str(partition)) in self.cleaned


class ListedFolder(NamedTuple):
    """A folder with files of it, or its error. ``names``: those of all its files."""

    path: str
    entries: list[ListedFile] | Unreadable
    names: Sequence[str] = ()


def text_of(name: str) -> str:
    """Return a name as text that can be stored: bytes that are not UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def folder_and_name(uri: str) -> tuple[str, str]:
    """Return folder and name of a URI of Store.uri. A query stands after the name of a file, and
    belongs to the folder.
    """
    path, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    folder, _, name = path.rpartition("/")
    return folder + mark + query, name


def sibling(uri: str, name: str) -> str:
    """Return the URI of another file in the same folder."""
    path, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    return path.rpartition("/")[0] + "/" + name + mark + query


def with_place(error: OSError, what: str, place: str) -> OSError:
    """Return an error for a person: ``/out: cannot be written: No space left on device``."""
    return OSError(error.errno, f"{what}: {one_line(error)}", place)


class Store:
    """Files below one root. Small to pickle: a worker connects anew when it first reads. Failures
    are OSErrors.
    """

    #: may files be appended to? Objects of a store may not
    grows = False

    @staticmethod
    def of(uri: str) -> tuple[Store, str]:
        """Return the store of a URI or a local path, and the path in it. Raises BatchvalError for
        an unknown scheme.
        """
        uri = plain_uri(uri)
        if reason := refusal(uri):
            raise BatchvalError(f"{shown(uri)}: {reason}")
        parts = split(uri) if "://" in uri else None
        if parts is None or not parts.scheme:
            return _LOCAL, uri
        scheme = parts.scheme
        if scheme == "file":
            return _LOCAL, unquote(parts.path)
        import batchval.segment.remote  # noqa: F401 (names the extra where pyarrow is missing)

        path = unquote(parts.path)
        if scheme not in ("hdfs", "viewfs"):
            path = f"{root_of(parts)}{path}".strip("/")
        return _Remote(scheme, parts.netloc, parts.query), path

    def uri(self, path: str) -> str:
        """Return the name of a file of this store, valid wherever the store can be reached."""
        raise NotImplementedError

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        raise NotImplementedError

    def source(self, path: str) -> Source:
        """Open a file for the walk of a SegmentReader, which closes it."""
        raise NotImplementedError

    def open(self, path: str, *, accept_claims_header: bool = False) -> SegmentReader:
        """Return a context manager with ``.read(position, size)`` and ``.size``, and the walk over
        its batches.
        """
        return SegmentReader(self.source(path), accept_claims_header=accept_claims_header)

    def read_bytes(self, path: str) -> bytes:
        """Return a whole small file, such as an index. Raises OSError also for a large one: a
        file's name must not decide how much memory is used.
        """
        with self.open(path) as file:
            return read_small(file)

    def list_segments(
        self, path: str, topics: tuple[str, ...] | None = None
    ) -> Iterator[SegmentInfo | Unreadable]:
        """Yield the segments at or below a path, folder by folder, in the order of their offsets,
        with what cannot be listed.

        ``topics`` are names or patterns (``orders-*``).
        """
        empty = True
        log_folders: dict[str, LogFolder] = {}
        for folder, entries, names in self._folders(path, log_folders):
            if isinstance(entries, Unreadable):
                empty = False
                yield entries
                continue
            if not any(SEGMENT_NAME.fullmatch(entry.name) for entry in entries):
                continue
            if _NO_PARTITION.fullmatch(os.path.basename(folder)):
                continue
            empty = False
            topic, partition = _partition_of(folder, names)
            if topics is not None and not any(
                fnmatch.fnmatchcase(topic, pattern) for pattern in topics
            ):
                continue
            yield from self._infos(
                topic, partition, entries, names, log_folders[os.path.dirname(folder)]
            )
        if empty:
            yield Unreadable(shown(self.uri(path)), "no segments in this folder")

    def _infos(
        self,
        topic: str,
        partition: int,
        entries: list[ListedFile],
        names: Sequence[str],
        log_folder: LogFolder,
    ) -> Iterator[SegmentInfo | Unreadable]:
        named = {entry.name: SideFile(entry.name, entry.size, entry.mtime_ns) for entry in entries}
        in_flux = any(_IN_FLUX.fullmatch(name) for name in names)
        all_names = sorted(filter(SEGMENT_NAME.fullmatch, names))
        segments = [entry for entry in entries if SEGMENT_NAME.fullmatch(entry.name)]
        for entry in segments:
            stem = entry.name.removesuffix(".log")
            if stem + MANIFEST in named and (reason := self._transformed(entry.path)):
                yield Unreadable(self.uri(entry.path), reason)
                continue
            tiered = is_tiered(entry.name)
            sides = [named[stem + suffix] for suffix in SIDE_SUFFIXES if stem + suffix in named]
            is_first = entry.name == all_names[0]
            if is_first:
                bases = {name[:20] for name in all_names}
                sides += [
                    side
                    for name, side in named.items()
                    if _SNAPSHOT.fullmatch(name) and name[:20] not in bases
                ]
                sides += [named[name] for name in PARTITION_FILES if name in named]
            yield SegmentInfo(
                uri=self.uri(entry.path),
                topic=topic,
                partition=partition,
                base_offset=int(stem[:20]),
                size=entry.size,
                mtime_ns=entry.mtime_ns,
                inode=entry.inode,
                sides=tuple(sides),
                cleaned=not tiered and log_folder.was_cleaned(topic, partition),
                is_last=not tiered and entry.name == all_names[-1],
                in_flux=in_flux,
                broker=log_folder.meta.get("node.id", log_folder.meta.get("broker.id")),
                cluster=log_folder.meta.get("cluster.id"),
                checkpoints=log_folder.checkpoints(topic, partition) if is_first else Checkpoints(),
            )

    def _transformed(self, path: str) -> str | None:
        """Return why a segment of tiered storage cannot be read; None where it is a plain one."""
        try:
            how = transformation(self.read_bytes(path.removesuffix(".log") + MANIFEST))
        except (OSError, ValueError) as error:
            return f"its {MANIFEST} cannot be read: {one_line(error)}"
        return how and f"{how} by a plugin for tiered storage, as stated by its {MANIFEST}"

    def log_folder(self, path: str, names: Iterable[str] | None = None) -> LogFolder:
        """Return the small files of a log folder; files that are missing or large are left
        out.

        ``names``: those that are there, where a listing knows them.
        """
        files = {}
        for name in (*CHECKPOINTS, META_PROPERTIES):
            if names is None or name in names:
                try:
                    files[name] = self.read_bytes(os.path.join(path, name))
                except OSError:
                    continue
        return LogFolder(files)

    def _folders(self, path: str, log_folders: dict[str, LogFolder]) -> Iterator[ListedFolder]:
        """Yield folders in order, each with its files in order; ``log_folders`` gets the parents
        before."""
        raise NotImplementedError


def _partition_of(folder: str, names: Iterable[str]) -> tuple[str, int]:
    if any(map(is_tiered, names)) and (found := partition_of(text_of(folder))):
        return found
    name = text_of(os.path.basename(folder))
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match and int(match[2]) < 1 << 31 else (name, -1)


NOT_A_SEGMENT = "not a segment: its name must be a base offset of 20 digits and .log"


class _Local(Store):
    grows = True

    def uri(self, path: str) -> str:
        return os.path.abspath(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def source(self, path: str) -> Source:
        return LocalFile(Path(path))

    def _folders(self, path: str, log_folders: dict[str, LogFolder]) -> Iterator[ListedFolder]:
        path = os.path.abspath(path)
        try:
            found = os.stat(path)
        except OSError as error:
            yield ListedFolder(path, Unreadable(path, one_line(error)))
            return
        if not stat.S_ISDIR(found.st_mode):
            if not SEGMENT_NAME.fullmatch(os.path.basename(path)):
                yield ListedFolder(path, Unreadable(path, NOT_A_SEGMENT))
                return
            folder, name = os.path.split(path)
            self._read_parent(folder, log_folders)
            stem = name.removesuffix(".log")
            chosen = [
                name,
                *(stem + suffix for suffix in (*SIDE_SUFFIXES, MANIFEST)),
                *PARTITION_FILES,
            ]
            yield from self._entries(folder, chosen, os.listdir(folder))
            return
        problems: list[OSError] = []
        for folder, names in walk(path, problems):
            if any(map(SEGMENT_NAME.fullmatch, names)):
                self._read_parent(folder, log_folders)
            yield from self._entries(folder, names, names)
        for problem in problems:
            yield ListedFolder(
                str(problem.filename), Unreadable(str(problem.filename), one_line(problem))
            )

    def _read_parent(self, folder: str, log_folders: dict[str, LogFolder]) -> None:
        parent = os.path.dirname(folder)
        if parent not in log_folders:
            log_folders[parent] = self.log_folder(parent)

    def _entries(self, folder: str, chosen: list[str], names: list[str]) -> Iterator[ListedFolder]:
        entries = []
        for name in chosen:
            file = os.path.join(folder, name)
            try:
                about = os.stat(file)
            except OSError as error:
                if SEGMENT_NAME.fullmatch(name) and os.path.lexists(file):
                    yield ListedFolder(folder, Unreadable(file, one_line(error)))
                continue
            entries.append(ListedFile(file, about.st_size, about.st_mtime_ns, about.st_ino))
        yield ListedFolder(folder, entries, names)


_LOCAL = _Local()


@dataclass(frozen=True)
class _Remote(Store):
    scheme: str
    host: str  # with credentials, if the URI has them
    query: str  # pyarrow's: region, endpoint_override and others

    @property
    def _files(self) -> RemoteFiles:
        from batchval.segment.remote import RemoteFiles

        return RemoteFiles(urlunsplit((self.scheme, self.host, "/", self.query, "")))

    def uri(self, path: str) -> str:
        parts = SplitResult(self.scheme, self.host, "", "", "")
        path = path.removeprefix(root_of(parts))
        return urlunsplit((self.scheme, self.host, quote(path), self.query, ""))

    def size(self, path: str) -> int:
        size = self._files.size(path)
        if size is None:
            raise FileNotFoundError(f"{shown(self.uri(path))}: no such file")
        return size

    def source(self, path: str) -> Source:
        return self._files.open(path)

    def _folders(self, path: str, log_folders: dict[str, LogFolder]) -> Iterator[ListedFolder]:
        base = path.removesuffix(".log")
        beside = [base + suffix for suffix in (*SIDE_SUFFIXES, MANIFEST)]
        beside += [os.path.join(os.path.dirname(path), name) for name in PARTITION_FILES]
        try:
            is_file, files = self._files.listed(path, beside)
        except OSError as error:
            yield ListedFolder(path, Unreadable(shown(self.uri(path)), one_line(error)))
            return
        if is_file and not SEGMENT_NAME.fullmatch(files[0].name):
            yield ListedFolder(path, Unreadable(shown(self.uri(path)), NOT_A_SEGMENT))
            return
        folders: dict[str, list[ListedFile]] = defaultdict(list)
        for file in files:
            folders[os.path.dirname(file.path)].append(file)
        for folder in sorted(folders):
            parent = os.path.dirname(folder)
            has_segments = any(SEGMENT_NAME.fullmatch(entry.name) for entry in folders[folder])
            if has_segments and parent not in log_folders:
                names = None if is_file else {entry.name for entry in folders.get(parent, ())}
                log_folders[parent] = self.log_folder(parent, names)
            yield ListedFolder(
                folder, sorted(folders[folder]), [entry.name for entry in folders[folder]]
            )
