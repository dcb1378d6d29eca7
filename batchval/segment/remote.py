"""Segments in an object store or HDFS, through pyarrow.fs: s3://, gs://, hdfs://, abfs://."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult, quote, urlunsplit

from batchval.optional import require
from batchval.segment.file_names import PARTITION_FILES, SEGMENT_NAME
from batchval.segment.reader import Source
from batchval.segment.schemes import root_of
from batchval.segment.store import (
    NOT_A_SEGMENT,
    SIDE_SUFFIXES,
    ListedFile,
    ListedFolder,
    LogFolder,
    Store,
    Unreadable,
    one_line,
    shown,
)
from batchval.segment.tiered import MANIFEST

require(__name__)

import pyarrow as pa  # noqa: E402 (an extra, which the line above names where it is missing)
from pyarrow import fs  # noqa: E402

__all__ = ["RemoteStore"]

_START_OF_A_BATCH = 17  # bytes: offset:8 size:4 crc or epoch:4 magic:1


@functools.lru_cache(maxsize=32)
def _connected(uri: str) -> Any:
    """Return the one connection of the process; pyarrow's connections can be used by many
    threads.
    """
    with _as_os_errors():
        return fs.FileSystem.from_uri(uri)[0]


class _as_os_errors:
    """A context that turns pyarrow's ArrowInvalid for storage errors into OSErrors for readers."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
            raise OSError(one_line(error)) from error


class _RemoteFile:
    """An object or file that is read by ranges, in large blocks because of the cost of requests."""

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

    def after_hole(self, position: int) -> int:
        """Return ``position``: a store does not report holes."""
        return position

    def close(self) -> None:
        with _as_os_errors():
            self._file.close()


@dataclass(frozen=True)
class RemoteStore(Store):
    scheme: str
    host: str  # with credentials, if the URI has them
    query: str  # pyarrow's: region, endpoint_override and others

    @property
    def _fs(self) -> Any:
        return _connected(urlunsplit((self.scheme, self.host, "/", self.query, "")))

    def uri(self, path: str) -> str:
        parts = SplitResult(self.scheme, self.host, "", "", "")
        path = path.removeprefix(root_of(parts))
        return urlunsplit((self.scheme, self.host, quote(path), self.query, ""))

    def size(self, path: str) -> int:
        with _as_os_errors():
            info = self._fs.get_file_info(path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{shown(self.uri(path))}: no such file")
        return int(info.size)

    def source(self, path: str) -> Source:
        return _RemoteFile(self._fs, path)

    def _folders(self, path: str, log_folders: dict[str, LogFolder]) -> Iterator[ListedFolder]:
        try:
            with _as_os_errors():
                about = self._fs.get_file_info(path)
                if about.type == fs.FileType.File:
                    base = path.removesuffix(".log")
                    sides = [base + suffix for suffix in (*SIDE_SUFFIXES, MANIFEST)]
                    sides += [os.path.join(os.path.dirname(path), name) for name in PARTITION_FILES]
                    files = [about, *self._fs.get_file_info(sides)]
                else:
                    files = self._fs.get_file_info(fs.FileSelector(path, recursive=True))
        except OSError as error:
            yield ListedFolder(path, Unreadable(shown(self.uri(path)), one_line(error)))
            return
        if about.type == fs.FileType.File and not SEGMENT_NAME.fullmatch(about.base_name):
            yield ListedFolder(path, Unreadable(shown(self.uri(path)), NOT_A_SEGMENT))
            return
        folders: dict[str, list[ListedFile]] = defaultdict(list)
        for file in files:
            if file.type == fs.FileType.File:
                folders[os.path.dirname(file.path)].append(
                    ListedFile(file.path, int(file.size), int(file.mtime_ns or 0))
                )
        for folder in sorted(folders):
            parent = os.path.dirname(folder)
            has_segments = any(SEGMENT_NAME.fullmatch(entry.name) for entry in folders[folder])
            if has_segments and parent not in log_folders:
                is_file = about.type == fs.FileType.File
                names = None if is_file else {entry.name for entry in folders.get(parent, ())}
                log_folders[parent] = self.log_folder(parent, names)
            yield ListedFolder(
                folder, sorted(folders[folder]), [entry.name for entry in folders[folder]]
            )
