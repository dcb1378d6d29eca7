"""Files of an object store or HDFS, through pyarrow.fs: s3://, gs://, hdfs://, abfs://."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from batchval.optional import require
from batchval.segment.folders import ListedFile
from batchval.segment.reader import Source
from batchval.segment.uris import one_line

require(__name__)

import pyarrow as pa  # noqa: E402 (an extra, which the line above names where it is missing)
from pyarrow import fs  # noqa: E402

__all__ = ["RemoteFiles"]

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


class RemoteFiles:
    """The files of the file system that a URI names. Failures are OSErrors."""

    def __init__(self, uri: str) -> None:
        self._fs = _connected(uri)

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes; None where no file has this path."""
        with _as_os_errors():
            info = self._fs.get_file_info(path)
        return int(info.size) if info.type == fs.FileType.File else None

    def open(self, path: str) -> Source:
        """Open a file, which is read by ranges."""
        return _RemoteFile(self._fs, path)

    def listed(self, path: str, beside: Sequence[str]) -> tuple[bool, list[ListedFile]]:
        """Return whether the path is a file's, and the files: it and those of ``beside`` that are
        there, or all below a folder.
        """
        with _as_os_errors():
            about = self._fs.get_file_info(path)
            is_file = about.type == fs.FileType.File
            if is_file:
                infos = [about, *self._fs.get_file_info(list(beside))]
            else:
                infos = self._fs.get_file_info(fs.FileSelector(path, recursive=True))
        return is_file, [
            ListedFile(info.path, int(info.size), int(info.mtime_ns or 0))
            for info in infos
            if info.type == fs.FileType.File
        ]
