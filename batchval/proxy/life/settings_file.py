"""A file of settings that may be read again while its gate runs, and the files that it names.

read    bytes of a regular file: a pipe would stop the reader
check   all faults, as at the start, and the keys that a running gate cannot take

Where only ``mode`` is new, no other file is read: a certificate that is gone, or a file system that
hangs, must not keep the gate from forwarding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from batchval.named_files import read
from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.reload import changes_only_mode, restart_faults
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import (
    MAX_FILE_BYTES,
    ConfigError,
    Draft,
    drafted_bytes,
    keys_of,
)
from batchval.proxy.settings.setting_types import Secret
from batchval.yaml_settings.faults import Fault, Loc, path_of

__all__ = ["UNREADABLE", "Checked", "FileDigests", "SettingsFile", "digest_of", "digests_of"]

#: Bytes of a certificate file, a key or a list of revoked certificates that are compared.
_MAX_COMPARED_BYTES: Final = 64 << 20
#: Stands for the content of a file that cannot be read.
UNREADABLE: Final = ""

#: Keys of what the gate writes or makes: it is neither compared nor read.
_WRITTEN: Final[frozenset[Loc]] = frozenset(
    {("state_directory",), ("control",), ("log", "audit_file"), ("quarantine", "directory")}
)

FileDigests = dict[Path, tuple[str, str]]
"""Path -> (a key that names it, SHA-256 of the file)."""


class Checked(NamedTuple):
    """Settings without faults, the content of the files that they name (None: only the mode is new,
    and they were not read), and a line for each warning.
    """

    settings: Settings
    files: FileDigests | None
    warnings: list[str]


class SettingsFile:
    """A settings file, and the values of the command line, which win. Its methods block.

    ``digest``  of the content that the gate has started with
    """

    def __init__(self, path: Path, overrides: Mapping[str, Any], digest: str) -> None:
        self.path = path
        self.digest = digest
        self._overrides = dict(overrides)

    def read(self) -> bytes:
        """Return the content, a byte more than allowed if it is too long. Raises ConfigError."""
        try:
            return read(self.path, MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError([f"{self.path}: {error.strerror}"]) from None

    def check(self, data: bytes, running: Settings) -> Checked:
        """Return the settings of this content. Raises ConfigError with all faults."""
        draft = drafted_bytes(data, self.path, self._overrides)
        if draft.settings is not None:
            draft.add(self._mode_without_effect(draft))
            if not draft.faults and changes_only_mode(running, draft.settings):
                return Checked(draft.settings, None, draft.warning_lines())
            draft.add(file_faults(draft.settings, self.path))
            draft.add(restart_faults(running, draft.settings))
        settings = draft.finished()
        return Checked(settings, digests_of(settings), draft.warning_lines())

    def _mode_without_effect(self, draft: Draft) -> Iterator[Fault]:
        """Warn that the file asks for another mode than the option that the gate runs with."""
        option = self._overrides.get("mode")
        if option is not None and draft.file_mode not in (None, option):
            text = (
                f"the option --mode {option} of the running gate wins: {draft.file_mode} in "
                f"{self.path} has no effect until the gate is started without the option"
            )
            yield Fault.of(("mode",), text).as_warning()


def digest_of(data: bytes) -> str:
    """Return what identifies a content."""
    return hashlib.sha256(data).hexdigest()


def digests_of(settings: Settings) -> FileDigests:
    """Return what the files that settings name hold now. Blocks."""
    found: FileDigests = {}
    for loc, path in _files((), settings):
        if path not in found:
            found[path] = path_of(loc), _digest_at(path)
    return found


def _digest_at(path: Path) -> str:
    try:
        return digest_of(read(path, _MAX_COMPARED_BYTES))
    except OSError:
        return UNREADABLE


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
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _files((*at, key), one)
    elif isinstance(value, Path):
        yield at, value
    elif isinstance(value, Secret) and value.file is not None:
        yield at, value.file
