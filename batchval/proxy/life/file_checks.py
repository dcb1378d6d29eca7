"""Check what settings name: files, the environment, and the upstream brokers.

Files and the environment: whether they can be read, by whom, and whether they fit. A password or a
private key that other users of the machine can read is refused. Members of a file's group may read
a secret in a file of its own (Kubernetes mounts secrets like that), but not the settings
themselves. Brokers: what they speak, and whether they let the gate log in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import ssl
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from batchval.custom_rules import CustomRule
from batchval.errors import BatchvalError
from batchval.named_files import opened, read
from batchval.network.errors import AuthenticationError, NetworkError
from batchval.optional import MissingExtraError, require
from batchval.protocol.errors import ProtocolError
from batchval.proxy.cluster.endpoints import problem_of
from batchval.proxy.cluster.probe import Kind, Probe, probe
from batchval.proxy.kit.sockets import addresses_of
from batchval.proxy.life.control import NOT_A_SOCKET
from batchval.proxy.produce.policies import log_in
from batchval.proxy.settings.config import ListenerTls, Otlp, Settings, Upstream, UpstreamTls
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_types import STAND_IN, Address, Secret
from batchval.proxy.tls.tls import listener_context, upstream_context
from batchval.proxy.watch.audit_file import numbered, rotated_path
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["file_faults", "file_warnings", "upstream_faults"]

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

_GROUP: Final = stat.S_IRGRP | stat.S_IWGRP

_FILES: Final = ("certificate", "key", "ca", "client_ca", "client_crl")

_MAX_KEY_BYTES: Final = 1 << 20


def file_faults(settings: Settings, source: Path | None) -> Iterator[Fault]:
    """Find unusable files, and secrets that others can read; ``source`` is the settings file."""
    for loc, secret in _secrets(settings):
        yield from _secret(loc, secret, source)
    for i, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield from _tls(
                ("listeners", i, "tls"), listener.tls, partial(listener_context, listener.tls)
            )
    if settings.upstream.tls is not None:
        tls = settings.upstream.tls
        yield from _tls(("upstream", "tls"), tls, partial(upstream_context, tls))
    if settings.state_folder is not None:
        yield from _folder(("state_directory",), settings.state_folder)
    if settings.control is not None:
        yield from _folder(("control",), settings.control.parent)
    yield from _control(settings)
    if settings.log.audit_file is not None:
        yield from _appended(("log", "audit_file"), settings.log.audit_file)
    if settings.quarantine is not None:
        yield from _new_folder(("quarantine", "directory"), settings.quarantine.directory)
    for i, registry in enumerate(settings.schema_registries):
        if registry.ca is not None:
            yield from _authorities(("schema_registries", i, "ca"), registry.ca)
    if (otlp := settings.metrics.otlp) is not None:
        yield from _otlp(otlp)
    yield from _custom_rules(settings)


def _otlp(otlp: Otlp) -> Iterator[Fault]:
    loc: Loc = ("metrics", "otlp")
    try:
        require("batchval.proxy.watch.otlp_export")
    except MissingExtraError as error:
        yield Fault.of(
            loc, f"needs {error.name}, which is not installed: pip install 'batchval[otel]'"
        )
    if otlp.ca is not None:
        yield from _authorities((*loc, "ca"), otlp.ca)


def _secrets(settings: Settings) -> Iterator[tuple[Loc, Secret]]:
    upstream = settings.upstream
    if upstream.admin is not None and upstream.admin.password is not None:
        yield ("upstream", "admin", "password"), upstream.admin.password
    if upstream.tls is not None and upstream.tls.key_password is not None:
        yield ("upstream", "tls", "key_password"), upstream.tls.key_password
    for i, listener in enumerate(settings.listeners):
        if listener.tls is not None and listener.tls.key_password is not None:
            yield ("listeners", i, "tls", "key_password"), listener.tls.key_password
    if settings.metrics.otlp is not None:
        for name, secret in settings.metrics.otlp.headers.items():
            yield ("metrics", "otlp", "headers", name), secret
    for i, registry in enumerate(settings.schema_registries):
        if registry.password is not None:
            yield ("schema_registries", i, "password"), registry.password


def _secret(loc: Loc, secret: Secret, source: Path | None) -> Iterator[Fault]:
    try:
        secret.reveal()
    except ValueError as error:
        yield Fault.of(loc, str(error))
        return
    if secret.file is not None:
        yield from _readable_by_others(loc, secret.file)
    elif secret.env is None and source is not None:
        mode = _mode(source)
        if mode & (_OTHERS | _GROUP):
            text = (
                f"stands in a file of mode {mode:04o}, which other users can read or change: "
                f"chmod 600 {shlex.quote(str(source))}, or write {{file: PATH}} or {{env: NAME}}"
            )
            yield Fault.of(loc, text)


def _readable_by_others(loc: Loc, path: Path) -> Iterator[Fault]:
    mode = _mode(path)
    if mode & _OTHERS:
        text = f"{path}: mode {mode:04o} lets every user read or change it: chmod o-rw {shlex.quote(str(path))}"
        yield Fault.of(loc, text)


def _mode(path: Path) -> int:
    """Return the permissions of a regular file; 0 for any other, and where there is none."""
    try:
        found = path.stat().st_mode
    except OSError:
        return 0
    return stat.S_IMODE(found) if stat.S_ISREG(found) else 0


def _tls(at: Loc, tls: ListenerTls | UpstreamTls, context: Callable[[], object]) -> Iterator[Fault]:
    paths = {key: path for key in _FILES if (path := getattr(tls, key, None)) is not None}
    faults = [
        Fault.of((*at, key), text) for key, path in paths.items() if (text := _unreadable(path))
    ]
    yield from faults
    if "key" in paths:
        yield from _readable_by_others((*at, "key"), paths["key"])
    password, loc = tls.key_password, (*at, "key_password")
    if password is not None and "key" in paths and _is_open(paths["key"]):
        yield Fault.of(loc, f"has no effect: {paths['key']} is not encrypted", (*at, "key"))
    if faults or (password is not None and not _is_known(password)):
        return
    try:
        context()
    except ConfigError as error:
        for line in error.problems:
            yield Fault(at, line, tuple((*at, key) for key in (*_FILES, "key_password")))


def _unreadable(path: Path) -> str:
    try:
        opened(path).close()
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _is_open(key: Path) -> bool:
    """Return whether a private key in PEM form needs no password."""
    try:
        text = read(key, _MAX_KEY_BYTES)
    except OSError:
        return False
    return b"PRIVATE KEY-----" in text and b"ENCRYPTED" not in text


def _is_known(secret: Secret) -> bool:
    try:
        secret.reveal()
    except ValueError:
        return False
    return True


def _authorities(loc: Loc, path: Path) -> Iterator[Fault]:
    text = _unreadable(path)
    if not text:
        try:
            ssl.create_default_context(cafile=str(path))
        except (OSError, ValueError) as error:  # SSLError is an OSError
            text = f"{path}: {error}"
    if text:
        yield Fault.of(loc, text)


def _custom_rules(settings: Settings) -> Iterator[Fault]:
    """Load each custom rule: its module is code that runs now."""
    wrong: dict[str, str] = {}
    for i, policy in enumerate(settings.topics.policies):
        for j, name in enumerate(policy.custom_rules):
            if name not in wrong:
                try:
                    CustomRule.load(name)
                    wrong[name] = ""
                except BatchvalError as error:
                    wrong[name] = str(error)
            if wrong[name]:
                loc: Loc = ("topics", "policies", i, "custom_rules", j)
                yield Fault.of(loc, wrong[name])


def _appended(loc: Loc, path: Path) -> Iterator[Fault]:
    """Find out whether a file could be appended to, or made; it is not opened here."""
    target, folder = path, path.parent
    text = None
    if target.is_dir():
        text = "is a directory, expected a file"
    elif target.exists():
        text = None if os.access(target, os.W_OK) else "this user may not write to it"
    elif not folder.is_dir():
        text = f"{folder} {_not_a_folder(folder)}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        text = f"this user may not make a file in {folder}"
    if text is not None:
        yield Fault.of(loc, f"{path}: {text}")


def file_warnings(settings: Settings) -> Iterator[Fault]:
    """Find an audit file that this gate could not rename, or whose renamed files it does not keep."""
    log, loc = settings.log, ("log", "audit_file")
    path = None if log.audit_file is None else rotated_path(log.audit_file)
    if path is None or log.audit_max_bytes is None or (path.exists() and not path.is_file()):
        return
    reads = (loc, ("log", "audit_max_bytes"), ("log", "audit_max_files"))
    full = f"at log.audit_max_bytes ({log.audit_max_bytes}) it is full, and refusals are left out"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        text = (
            f"{log.audit_file}: this user may not rename files in {path.parent}: {full} until it "
            "is moved. Let this user write there, or set log.audit_max_bytes: null"
        )
        yield Fault(loc, text, reads)
    elif _is_mounted(path):
        text = f"{log.audit_file}: is a mount, which cannot be renamed: {full}. Mount its directory"
        yield Fault(loc, text, reads)
    elif (extra := numbered(path, log.audit_max_files)).exists():
        text = f"{extra}: is not deleted by the gate: log.audit_max_files is {log.audit_max_files}"
        yield Fault(loc, text, reads)


def _is_mounted(path: Path) -> bool:
    """Return whether a file system is mounted at this path, as containers do with single files."""
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
        return any(line.split()[4:5] == [str(path)] for line in mounts)
    return False


def _not_a_folder(path: Path) -> str:
    """Return why a path is not a folder, and what to do about one that does not exist."""
    if path.exists():
        return "is not a directory"
    return f"does not exist: mkdir -p {shlex.quote(str(path))}"


def _folder(loc: Loc, path: Path) -> Iterator[Fault]:
    if not path.is_dir():
        yield Fault.of(loc, f"{path}: {_not_a_folder(path)}")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield Fault.of(loc, f"{path}: this user may not write there")


def _control(settings: Settings) -> Iterator[Fault]:
    """Find a file or a folder at the path of the control socket."""
    path = settings.control_path
    if path is not None and path.exists() and not path.is_socket():
        loc: Loc = ("state_directory",) if settings.control is None else ("control",)
        yield Fault.of(loc, f"{path}: is not a socket: {NOT_A_SOCKET}")


def _new_folder(loc: Loc, path: Path) -> Iterator[Fault]:
    """Check a folder that the gate makes where it does not exist."""
    exists = path.exists()
    folder = path if exists else path.parent
    if not folder.is_dir():
        yield Fault.of(loc, f"{folder}: {_not_a_folder(folder)}")
    elif not os.access(folder, os.W_OK | os.X_OK | os.R_OK * exists):
        yield Fault.of(loc, f"{folder}: this user may not {'read and ' * exists}write there")
    elif exists and (mode := stat.S_IMODE(path.stat().st_mode)) & stat.S_IWOTH:
        text = f"{path}: mode {mode:04o} lets every user write there: chmod o-w {shlex.quote(str(path))}"
        yield Fault.of(loc, text)


PROBE_S: Final = 3.0

_BOOTSTRAP: Final[Loc] = ("upstream", "bootstrap")

_TLS: Final[Loc] = ("upstream", "tls")

_ADMIN: Final[Loc] = ("upstream", "admin")

#: What is wrong with an upstream of each kind. The others are reported as warnings: the cluster may
#: be down.
_WRONG: Final[dict[Kind, str]] = {
    "http": "{} speaks HTTP, not Kafka: set the address of a broker",
    "tls": "{} speaks TLS: set upstream.tls (with ca, or {{}} for the authorities of the system)",
    "plaintext": "{} speaks Kafka without TLS, and upstream.tls is set: set the broker's port with TLS",
    "untrusted": "the TLS handshake with {} fails: {}",
    "other": "{} does not speak Kafka: it answered {}",
}

_WARNING: Final[dict[Kind, str]] = {
    "unreachable": "{} cannot be reached: {}",
    "silent": "{} does not answer: {}",
}


def upstream_faults(settings: Settings, *, logs_in: bool = True) -> tuple[list[Fault], list[Fault]]:
    """Return what is wrong with the upstreams, and warnings. Takes at most three times PROBE_S.

    With ``logs_in`` each broker is asked whether it accepts ``upstream.admin``, too. A login that
    is refused is wrong: a gate with it knows no limits of topics. One that could not be tried is a
    warning.
    """
    try:
        tls = None if settings.upstream.tls is None else upstream_context(settings.upstream.tls)
    except ConfigError:
        return [], []  # reported with the files
    wrong: list[Fault] = []
    warnings: list[Fault] = []
    speakers: list[Address] = []
    addresses = [
        address for address in dict.fromkeys(settings.upstream.bootstrap) if address != STAND_IN
    ]
    for address, found in zip(addresses, asyncio.run(_probed(addresses, tls)), strict=True):
        for sentences, faults in ((_WRONG, wrong), (_WARNING, warnings)):
            if found.kind in sentences:
                loc, text = _TLS if found.kind == "untrusted" else _BOOTSTRAP, sentences[found.kind]
                reads = (_BOOTSTRAP, _TLS)
                faults.append(Fault(loc, text.format(address, found.reason), reads))
        if found.kind == "kafka":
            speakers.append(address)
    admin = settings.upstream.admin
    if logs_in and admin is not None and admin.username is not None:
        for found_wrong, fault in asyncio.run(_logins(settings.upstream, tls, speakers)):
            (wrong if found_wrong else warnings).append(fault)
    return wrong, warnings


async def _logins(
    upstream: Upstream, tls: ssl.SSLContext | None, addresses: list[Address]
) -> list[tuple[bool, Fault]]:
    """Return (whether it is wrong, fault) of each login that did not succeed."""
    found = await asyncio.gather(*(_login(upstream, tls, address) for address in addresses))
    return [one for one in found if one is not None]


async def _login(
    upstream: Upstream, tls: ssl.SSLContext | None, address: Address
) -> tuple[bool, Fault] | None:
    admin = upstream.admin
    assert admin is not None
    whose = f"of {admin.username} with {admin.mechanism}"
    try:
        async with asyncio.timeout(PROBE_S):
            await log_in(upstream, tls, address)
    except AuthenticationError as error:
        text = f"{address} refuses the login {whose}: {error}"
        return True, Fault(_ADMIN, text, (_BOOTSTRAP, _TLS, _ADMIN))
    except ConfigError:
        return None  # reported with the files
    except (NetworkError, OSError, ProtocolError) as error:
        text = f"the login {whose} at {address} could not be tried: {problem_of(error)}"
        return False, Fault(_ADMIN, text, (_BOOTSTRAP, _TLS, _ADMIN))
    return None


async def _probed(addresses: list[Address], tls: ssl.SSLContext | None) -> list[Probe]:
    return await asyncio.gather(*(_probe(address, tls) for address in addresses))


async def _probe(address: Address, tls: ssl.SSLContext | None) -> Probe:
    # a look-up in a thread of the loop's could not be left when it takes too long
    if not await asyncio.to_thread(addresses_of, address.host):
        return Probe("unreachable", "its name cannot be resolved")
    return await probe(address, tls, PROBE_S)
