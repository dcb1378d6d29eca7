"""The files of quarantined batches: two for each, within a number of bytes in all.

    20261126T081500.123Z-orders-3-4711-000017.log    the batch, as it came
    20261126T081500.123Z-orders-3-4711-000017.json   the verdict on it, written last

The name has the time (UTC), the topic, the partition, the process id and a number. A topic whose
name Kafka does not allow, or that is long, has a part of its SHA-256 instead. The oldest files go
first, those of earlier processes included; files with other names are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from batchval.proxy.kit.topics import is_topic_name

__all__ = ["MOST_BATCHES", "QuarantineFolder"]

#: Batches that are kept, however small they are: a look at the folder takes 5 us for each file.
MOST_BATCHES: Final = 10_000
#: The folder is read again after 1/16 of its bytes or batches: other workers write, too.
_LOOKS: Final = 16
_LONGEST_TOPIC: Final = 100
_HASHED: Final = 16  # digits
_NAME: Final = re.compile(r"(\d{8}T\d{6}\.\d{3}Z-[A-Za-z0-9._-]{1,150}-\d+-\d{6,})\.(log|json)")
_TEMPORARY: Final = re.compile(rf"\.{_NAME.pattern}\.new")


class QuarantineFolder:
    """One folder, written by one thread; other processes may write to it, too. Raises OSError.

    ``bytes``  of its files, as far as known
    """

    def __init__(self, path: Path, max_bytes: int, most_batches: int = MOST_BATCHES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.most_batches = most_batches
        self.bytes = 0
        self._sizes: dict[str, int] = {}  # of both files by their name, oldest first
        self._written = 0  # bytes and batches since the folder was read
        self._written_batches = 0
        self._number = 0

    def open(self) -> None:
        """Make the folder where it does not exist, and delete what is over its bounds."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        self._read()
        self._delete_down(self.max_bytes, self.most_batches)

    def name_for(self, when: float, topic: str | None, partition: int) -> str:
        """Return the name of a new batch, without its end."""
        self._number += 1
        stamp = (
            f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(when))}.{int(when * 1000) % 1000:03d}Z"
        )
        return f"{stamp}-{_safe(topic)}-{max(0, partition)}-{os.getpid()}-{self._number:06d}"

    def write(self, name: str, batch: memoryview | None, verdict: bytes) -> None:
        """Write the files of a batch; without one, the verdict alone. The oldest are deleted.

        A folder that somebody has removed is made again.
        """
        try:
            self._write_both(name, batch, verdict)
        except FileNotFoundError:
            self._sizes, self.bytes = {}, 0
            self.open()
            self._write_both(name, batch, verdict)

    def _write_both(self, name: str, batch: memoryview | None, verdict: bytes) -> None:
        size = (0 if batch is None else len(batch)) + len(verdict)
        if (
            self._written > self.max_bytes // _LOOKS
            or self._written_batches > self.most_batches // _LOOKS
        ):
            self._read()
        self._delete_down(self.max_bytes - size, self.most_batches - 1)
        try:
            if batch is not None:
                self._write(f"{name}.log", batch)
            self._write(f"{name}.json", verdict)
        except BaseException:
            self._remove(name)
            raise
        self._sizes[name] = size
        self.bytes += size
        self._written += size
        self._written_batches += 1

    def _write(self, name: str, data: memoryview | bytes) -> None:
        """Write one file under another name, which no reader takes, and rename it."""
        new = self.path / f".{name}.new"
        try:
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
            ) as file:
                file.write(data)
            os.rename(new, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def _read(self) -> None:
        """Note the files that are there, and delete parts of files that nobody finishes."""
        sizes: dict[str, int] = {}
        old = time.time() - 3600
        with os.scandir(self.path) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                with contextlib.suppress(OSError):  # another worker has deleted it
                    if match is not None and entry.is_file(follow_symlinks=False):
                        sizes[match[1]] = (
                            sizes.get(match[1], 0) + entry.stat(follow_symlinks=False).st_size
                        )
                    elif (
                        _TEMPORARY.fullmatch(entry.name)
                        and entry.stat(follow_symlinks=False).st_mtime < old
                    ):
                        os.unlink(entry.path)
        self._sizes = dict(sorted(sizes.items()))
        self.bytes = sum(sizes.values())
        self._written = self._written_batches = 0

    def _delete_down(self, most_bytes: int, most_batches: int) -> None:
        for name in self._oldest(most_bytes, most_batches):
            self._remove(name)
            self.bytes -= self._sizes.pop(name)

    def _oldest(self, most_bytes: int, most_batches: int) -> Iterable[str]:
        """Return the names that have to go."""
        found = []
        left, count = self.bytes, len(self._sizes)
        for name, size in self._sizes.items():
            if left <= most_bytes and count <= most_batches:
                break
            found.append(name)
            left -= size
            count -= 1
        return found

    def _remove(self, name: str) -> None:
        for end in ("json", "log"):
            with contextlib.suppress(FileNotFoundError):
                (self.path / f"{name}.{end}").unlink()


def _safe(topic: str | None) -> str:
    """Return what stands for a topic in a file's name: a client cannot choose it freely."""
    if topic is None:
        return "unknown"
    if is_topic_name(topic) and len(topic) <= _LONGEST_TOPIC:
        return topic
    return f"sha256-{hashlib.sha256(topic.encode(errors='surrogatepass')).hexdigest()[:_HASHED]}"
