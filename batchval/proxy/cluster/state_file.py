"""The brokers of the cluster, in a file, so that a gate serves its ports before it has reached one.

    STATE_DIRECTORY/brokers.json
    {"format": "batchval-gate-brokers", "version": 1, "bootstrap": ["kafka-1:9092"],
     "cluster_id": null, "requires_authentication": false,
     "brokers": {"1": ["kafka-1", 9092]}, "ports": {"default": {"1": 19093}}}

``brokers`` maps node ids to the brokers' own addresses; ``ports`` maps the gate's listeners to the
port of each broker. The file directs clients' traffic: one that other users can write is ignored.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from batchval.proxy.cluster.metadata_client import BrokerAddress
from batchval.proxy.settings.host_patterns import MAX_HOST, MAX_NODE_ID

__all__ = ["StateFile", "StoredCluster", "replace_file", "set_aside"]

#: Seconds after which nobody finishes a new file any more.
UNFINISHED_S: Final = 3_600.0


def replace_file(path: Path, pieces: Iterable[bytes], suffix: str = ".new") -> None:
    """Write the pieces to a new file of mode 0600, sync it and rename it to ``path``.

    The folder is made with mode 0700 where it does not exist yet. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}{suffix}")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()  # of a process that was killed
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    _sync_folder(path.parent)
    _delete_unfinished(path)


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read to ``NAME.corrupt`` and return that. Raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    os.replace(path, aside)
    return aside


def _delete_unfinished(path: Path) -> None:
    """Delete what killed processes have left of a file: each process may have its own suffix."""
    old = time.time() - UNFINISHED_S
    with contextlib.suppress(OSError):
        for left in path.parent.iterdir():
            if left.name.startswith(f"{path.name}.") and left.name.endswith(".new"):
                with contextlib.suppress(OSError):  # another process has deleted it
                    if left.lstat().st_mtime < old:
                        left.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


log = logging.getLogger("batchval.proxy")

NAME: Final = "brokers.json"

FORMAT: Final = "batchval-gate-brokers"

VERSION: Final = 1

MAX_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """The content of the state file. ``bootstrap``: the addresses that were configured then."""

    bootstrap: tuple[str, ...] = ()
    cluster_id: str | None = None
    requires_authentication: bool | None = None
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    ports: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's content."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "bootstrap": self.bootstrap,
            "cluster_id": self.cluster_id,
            "requires_authentication": self.requires_authentication,
            "brokers": {str(node_id): list(at) for node_id, at in self.brokers.items()},
            "ports": {
                name: {str(node_id): port for node_id, port in ports.items()}
                for name, ports in self.ports.items()
            },
        }
        return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> StoredCluster:
        """Read a file's content. Raises ValueError."""
        try:
            content = json.loads(data)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        found = _fields(content, "the file")
        if found.get("format") != FORMAT:
            raise ValueError(f"format is {found.get('format')!r}, expected {FORMAT!r}")
        if found.get("version") != VERSION:
            raise ValueError(f"version is {found.get('version')!r}, expected {VERSION}")
        bootstrap = found.get("bootstrap")
        if not isinstance(bootstrap, list) or not all(isinstance(one, str) for one in bootstrap):
            raise ValueError("bootstrap is not a list of addresses")
        return cls(
            tuple(bootstrap),
            _text_or_none(found.get("cluster_id")),
            _bool_or_none(found.get("requires_authentication")),
            {
                _node_id(key): _address(at)
                for key, at in _fields(found.get("brokers"), "brokers").items()
            },
            {
                name: {_node_id(key): _port(port) for key, port in _fields(ports, "ports").items()}
                for name, ports in _fields(found.get("ports"), "ports").items()
            },
        )


class StateFile:
    """The file in the state directory. Its methods block: call them in a thread."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory) / NAME
        self._failure = ""

    def load(self) -> StoredCluster | None:
        """Return what the file holds; None, with one warning, if that cannot be used."""
        try:
            return StoredCluster.decode(_read(self.path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("the state file %s is ignored: %s", self.path, _reason(error))
            return None

    def save(self, state: StoredCluster) -> bool:
        """Replace the file's content, whole or not at all; return whether it could be written."""
        try:
            # by process: two gates of a hand-over may write at once
            replace_file(self.path, [state.encode()], f".{os.getpid()}.new")
        except OSError as error:
            reason = _reason(error)
            if reason != self._failure:
                self._failure = reason
                log.warning("the state file %s cannot be written: %s", self.path, reason)
            return False
        self._failure = ""
        return True


def _read(path: Path) -> bytes:
    # not blocked by a pipe of this name
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a regular file")
        if facts.st_uid not in (os.geteuid(), 0):
            raise ValueError(f"its owner is user {facts.st_uid}")
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError(
                f"others can write it (mode {stat.S_IMODE(facts.st_mode):04o}, expected 0600)"
            )
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    return data


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _fields(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a JSON object")
    return value


def _node_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= MAX_NODE_ID):
        raise ValueError(f"{key!r} is not a node id")
    return int(key)


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value <= 0xFFFF:
        raise ValueError(f"{value!r} is not a port")
    return value


def _address(value: object) -> BrokerAddress:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a host and a port")
    host, port = value
    if not isinstance(host, str) or not 0 < len(host) <= MAX_HOST or not host.isprintable():
        raise ValueError(f"{host!r} is not a host")
    return host, _port(port)


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"cluster_id is {value!r}, expected a text or null")
    return value


def _bool_or_none(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"requires_authentication is {value!r}, expected true, false or null")
    return value
