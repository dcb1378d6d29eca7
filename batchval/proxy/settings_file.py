"""A file of settings that may be read again while its gate runs, and the files that it names.

read    bytes of a regular file: a pipe would stop the reader
check   all faults, as at the start, and the keys that a running gate cannot take
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from batchval.proxy.config import Settings
from batchval.proxy.faults import Fault, Loc, path_of
from batchval.proxy.file_checks import file_faults
from batchval.proxy.loading import MOST_FILE_BYTES, ConfigError, drafted_bytes, keys_of
from batchval.proxy.secret import Secret
from batchval.proxy.settings_diff import restart_faults

__all__ = ["Checked", "FileDigests", "SettingsFile", "digest_of", "digests_of"]

#: Bytes of a certificate file, a key or a list of revoked certificates that are compared.
_MOST_COMPARED: Final = 64 << 20
_IRREGULAR: Final = "is not a regular file, and only those are read while the gate runs"

#: Keys of what the gate writes or makes: it is neither compared nor read.
_WRITTEN: Final[frozenset[Loc]] = frozenset(
    {("state_directory",), ("control",), ("log", "audit_file"), ("quarantine", "directory")}
)

FileDigests = dict[str, tuple[str, str]]
"""Key -> (path, SHA-256 of the file)."""


class Checked(NamedTuple):
    """Settings without a fault, and what the files that they name hold."""

    settings: Settings
    files: FileDigests


class SettingsFile:
    """A path, and the values of the command line, which win. Its methods block.

    ``digest``  of the content that the gate has started with
    """

    def __init__(self, path: Path, overrides: Mapping[str, Any], digest: str) -> None:
        self.path = path
        self.digest = digest
        self._overrides = dict(overrides)

    def read(self) -> bytes:
        """Return the content; a byte more than is allowed where it is too long. ConfigError."""
        try:
            return _read(self.path, MOST_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError([f"{self.path}: {error.strerror}"]) from None

    def check(self, data: bytes, running: Settings) -> Checked:
        """Return the settings of this content. ConfigError with all faults."""
        draft = drafted_bytes(data, self.path, self._overrides)
        if draft.settings is not None:
            irregular = list(_irregular(draft.settings))
            draft.add(irregular or file_faults(draft.settings, self.path))
            draft.add(restart_faults(running, draft.settings))
        settings = draft.finished()
        return Checked(settings, digests_of(settings))


def digest_of(data: bytes) -> str:
    """Return what identifies a content."""
    return hashlib.sha256(data).hexdigest()


def digests_of(settings: Settings) -> FileDigests:
    """Return what the files that settings name hold now. ConfigError."""
    found: FileDigests = {}
    for loc, path in _files((), settings):
        try:
            found[path_of(loc)] = str(path), digest_of(_read(path, _MOST_COMPARED))
        except OSError as error:
            raise ConfigError([f"{path_of(loc)}: {path}: {error.strerror}"]) from None
    return found


def _read(path: Path, most: int) -> bytes:
    """Return at most so many bytes of a regular file. Raises OSError."""
    # the writer of a pipe would take the open for its reader
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, _IRREGULAR)
    # the file may be another one by now: without O_NONBLOCK the open of a pipe would wait
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, _IRREGULAR)
        return file.read(most)


def _irregular(settings: Settings) -> Iterator[Fault]:
    """Find files that are named and that reading could wait for."""
    for loc, path in _files((), settings):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # file_faults says so
        if not stat.S_ISREG(mode):
            yield Fault(loc, f"{path}: {_IRREGULAR}", (loc,))


def _files(at: Loc, value: Any) -> Iterator[tuple[Loc, Path]]:
    """Yield the files that the gate reads, and the keys that name them."""
    if at in _WRITTEN:
        return
    if isinstance(value, BaseModel):
        for name, key in keys_of(type(value)).items():
            yield from _files((*at, key), getattr(value, name))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from _files((*at, i), one)
    elif isinstance(value, Path):
        yield at, value
    elif isinstance(value, Secret) and value.file is not None:
        yield at, value.file
