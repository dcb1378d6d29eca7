"""Types of small values in settings, each with one way to write it.

Address    127.0.0.1:9092   gate.example.com:9092   [::1]:9092   :9092 (every interface)
brokers    a:9092,b:9092    or a list of addresses
claims     ignore | verify | audit:0.01 | trust
workers    1 to 64 | auto
bridge     none | producers | consumers | [producers, consumers]

``Secret`` is a password or the like, and its source:

password: {file: /run/secrets/kafka}   or {env: KAFKA_PASSWORD}   or the word itself
"""

from __future__ import annotations

import ipaddress
import os
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, ValidationInfo

from batchval.errors import BatchvalError
from batchval.named_files import read
from batchval.policy import ClaimsPolicy
from batchval.proxy.settings.host_patterns import (
    check_advertised_host,
    check_allowed_host,
    check_server_name,
)
from batchval.schema_registry.registry_client import split_url

__all__ = [
    "BRIDGES",
    "HIDDEN",
    "MAX_PORT",
    "MAX_WORKERS",
    "STAND_IN",
    "STAND_IN_WORD",
    "Address",
    "AddressField",
    "AdvertisedHostField",
    "AllowedHostField",
    "BootstrapNameField",
    "BridgeField",
    "BrokerNameField",
    "BrokersField",
    "ClaimsField",
    "PathField",
    "Secret",
    "SecretField",
    "WorkersField",
    "check_url",
]

#: what stands where a secret would be shown
HIDDEN = "(hidden)"

#: Bytes of a secret's file.
MAX_SECRET_BYTES: Final = 64 << 10


class Secret:
    """A secret by its source. ``reveal`` reads it anew each time, so that a file may be replaced.

    Two secrets are equal where their sources are.
    """

    __slots__ = ("_word", "env", "file")

    def __init__(
        self, word: str | None = None, *, file: Path | None = None, env: str | None = None
    ) -> None:
        self._word = word
        self.file = file
        self.env = env

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._word, self.file, self.env) == (other._word, other.file, other.env)

    def __hash__(self) -> int:
        return hash((self._word, self.file, self.env))

    @classmethod
    def parse(cls, value: Any, folder: Path) -> Secret:
        """Return a secret from a settings file; relative paths start at ``folder``. Raises
        ValueError, which shows no secret.
        """
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            if not value:
                raise ValueError("is empty")
            return cls(value)
        if isinstance(value, dict) and len(value) == 1:
            ((kind, where),) = value.items()
            if isinstance(where, str) and where:
                if kind == "file":
                    return cls(file=folder / where)
                if kind == "env":
                    return cls(env=where)
        raise ValueError("must be text, {file: PATH} or {env: NAME}")

    def reveal(self) -> str:
        """Return the secret. One trailing newline of a file is stripped. Raises ValueError, which
        names the source alone.
        """
        if self.file is not None:
            try:
                data = read(self.file, MAX_SECRET_BYTES + 1)
                word = data.decode()
            except OSError as error:
                raise ValueError(f"{self.file}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ValueError(f"{self.file}: is not UTF-8") from None
            if len(data) > MAX_SECRET_BYTES:
                raise ValueError(f"{self.file}: is longer than {MAX_SECRET_BYTES} bytes")
            word = word.removesuffix("\n").removesuffix("\r")
            if not word:
                raise ValueError(f"{self.file}: is empty")
            return word
        if self.env is not None:
            word = os.environ.get(self.env, "")
            if not word:
                raise ValueError(f"the environment has no {self.env}, or it is empty")
            return word
        assert self._word is not None
        return self._word

    def shown(self) -> object:
        """Return what may be printed."""
        if self.file is not None:
            return {"file": str(self.file)}
        return {"env": self.env} if self.env is not None else HIDDEN

    def __repr__(self) -> str:
        return f"Secret({self.shown()!r})"


MAX_PORT: Final = 65535

#: Processes that ``workers`` may ask for.
MAX_WORKERS: Final = 64

_HOST = re.compile(r"[A-Za-z0-9_.-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")


class Address(NamedTuple):
    """A host and a port, to listen on or to connect to."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return an address from HOST:PORT, with IPv6 in brackets. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address is written in brackets, such as [::1]:9092")
        if not colon or not port.isascii() or not port.isdigit() or not _HOST.fullmatch(host):
            raise ValueError("must be HOST:PORT")
        if int(port) > MAX_PORT:
            raise ValueError(f"port {port} is out of range: expected 0 to {MAX_PORT}")
        return cls(host, int(port))

    @property
    def is_wildcard(self) -> bool:
        """Return whether the host means every interface, which clients cannot connect to."""
        return self.host in ("", "0.0.0.0", "::")

    @property
    def is_loopback(self) -> bool:
        """Return whether the address is reachable from this machine alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


#: The clients whose old versions may be raised.
BRIDGES: Final = ("producers", "consumers")

#: Takes the place of an address that is wrong while other settings are checked; nothing connects to
#: it.
STAND_IN = Address("stand-in.invalid", 1)

#: The same for a text.
STAND_IN_WORD = "stand-in"


def _folder(info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", "."))


def _address(value: Any) -> Any:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("must be HOST:PORT")
    return Address.parse(value)


def _broker(value: Any) -> Any:
    address = _address(value)
    if address.is_wildcard or not address.port:
        raise ValueError("must be HOST:PORT of a broker")
    return address


def _brokers(value: Any) -> Any:
    """Return the addresses of ``a:9092,b:9092``; elements of a list are validated later."""
    if isinstance(value, Address):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError("must be HOST:PORT, HOST:PORT,HOST:PORT or a list of them")
    parts = [part.strip() for part in value.split(",")]
    found, wrong = [], []
    for number, part in enumerate(parts, 1):
        try:
            found.append(_broker(part))
        except ValueError as error:
            wrong.append(
                f"address {number} of {len(parts)}: {error}" if len(parts) > 1 else str(error)
            )
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(found)


def _claims(value: Any) -> Any:
    if isinstance(value, ClaimsPolicy):
        return value
    if not isinstance(value, str):
        raise ValueError("must be ignore, verify, audit:RATE or trust")
    try:
        return ClaimsPolicy.parse(value)
    except BatchvalError as error:
        raise ValueError(str(error)) from None


def _bridge(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if words == ["none"]:
        return ()
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be none, producers, consumers or a list of the last two")
    for word in words:
        if word not in BRIDGES:
            raise ValueError(
                f"must be none, producers, consumers or a list of the last two, not '{word}'"
            )
    return tuple(word for word in BRIDGES if word in words)


def _workers(value: Any) -> Any:
    is_number = type(value) is int and 1 <= value <= MAX_WORKERS
    if not is_number and value != "auto":
        raise ValueError(f"must be a number from 1 to {MAX_WORKERS}, or auto, not {value!r:.40}")
    return value


def _server_name(value: Any, *, has_node: bool) -> Any:
    if not isinstance(value, str) or value is STAND_IN_WORD:
        return value
    return check_server_name(value, has_node=has_node)


def check_url(url: str, *, path: str, instead: str) -> str:
    """Return the URL of a server that is asked by HTTP. Raises ValueError.

    ``path``     what the error says of a URL's path
    ``instead``  what is set where a URL holds credentials
    """
    try:
        if url != STAND_IN_WORD:
            split_url(url)
    except BatchvalError as error:
        if "credentials" in str(error):
            raise ValueError(f"it holds credentials: set {instead} instead") from None
        raise ValueError(f"expected http://HOST:PORT or https://HOST:PORT{path}") from None
    return url


def _path(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("must be the path of a file")
    return _folder(info) / value


def _secret(value: Any, info: ValidationInfo) -> Any:
    return Secret.parse(value, _folder(info))


AdvertisedHostField = Annotated[str, AfterValidator(check_advertised_host)]

AllowedHostField = Annotated[str, AfterValidator(check_allowed_host)]

BootstrapNameField = Annotated[str, BeforeValidator(partial(_server_name, has_node=False))]

BrokerNameField = Annotated[str, BeforeValidator(partial(_server_name, has_node=True))]

AddressField = Annotated[InstanceOf[Address], BeforeValidator(_address)]

BridgeField = Annotated[tuple[str, ...], BeforeValidator(_bridge)]

BrokerField = Annotated[InstanceOf[Address], BeforeValidator(_broker)]

BrokersField = Annotated[tuple[BrokerField, ...], Field(min_length=1), BeforeValidator(_brokers)]

ClaimsField = Annotated[InstanceOf[ClaimsPolicy], BeforeValidator(_claims)]

PathField = Annotated[InstanceOf[Path], BeforeValidator(_path)]

SecretField = Annotated[InstanceOf[Secret], BeforeValidator(_secret)]

WorkersField = Annotated[int | Literal["auto"], BeforeValidator(_workers)]
