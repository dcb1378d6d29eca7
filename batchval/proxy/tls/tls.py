"""TLS on both sides: contexts from settings, the names in a client's certificate and in the gate's.

A client has two names. ``subject_of`` is the subject alone, as Kafka's principals have it.
``identity_of`` is the subject and the subjects of the authorities that vouch for it, up to the one
in ``client_ca``: what claims are kept under, since two authorities may issue the same subject.

``certificate_warnings`` warns where a listener's certificate does not cover the hosts that its
clients connect to. Clients verify the host by default (Java's
ssl.endpoint.identification.algorithm, librdkafka's enable.ssl.certificate.verification). ``ssl``
shows the names of a certificate only where it was verified, so the listener's own is verified here,
as its own authority, in a handshake in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from batchval.named_files import opened
from batchval.network.security import reason_of
from batchval.proxy.settings.config import Listener, ListenerTls, Settings, UpstreamTls
from batchval.proxy.settings.host_patterns import NODE, HostPattern
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_types import Secret
from batchval.yaml_settings.faults import Fault, Loc

__all__ = [
    "certificate_warnings",
    "identity_of",
    "listener_context",
    "refusal_of",
    "server_certificate",
    "subject_of",
    "upstream_context",
]

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

# RFC 4514's short names; any other attribute keeps the one that OpenSSL gives it
_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}

# x509_vfy.h: UNABLE_TO_GET_CRL, CRL_SIGNATURE_FAILURE, CRL_NOT_YET_VALID, CRL_HAS_EXPIRED
_CRL_FAULTS = frozenset({3, 8, 11, 12})


def listener_context(settings: ListenerTls) -> ssl.SSLContext:
    """Return the server side of one listener, made from the files' present content.

    Raises ConfigError where the files are not what they should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    # a resumed session would outlive the authority that vouched for it
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    # OpenSSL would also take ffdhe8192, which costs 120 ms of CPU for one ClientHello. Every TLS
    # 1.3 client has to support this group (RFC 8446, 9.1), and ssl can name only one.
    context.set_ecdh_curve("prime256v1")
    server_certificate(context, settings)
    if settings.client_ca is not None:
        _load_authorities(context, settings.client_ca)
        _refuse_equal_names(context, settings.client_ca)
    if settings.client_crl is not None:
        _load_revoked(context, settings.client_crl)
    context.verify_mode = _CLIENT_AUTH[settings.client_certificates]
    return context


def upstream_context(settings: UpstreamTls) -> ssl.SSLContext:
    """Return the client side of connections to brokers, from the files. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    context.minimum_version = _VERSIONS[settings.minimum_version]
    if settings.ca is not None:
        _load_authorities(context, settings.ca)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.certificate is not None and settings.key is not None:
        _load_chain(context, settings.certificate, settings.key, settings.key_password)
    return context


def server_certificate(context: ssl.SSLContext, settings: ListenerTls) -> None:
    """Load the certificate that a listener shows. Raises ConfigError."""
    _load_chain(context, settings.certificate, settings.key, settings.key_password)


def _load_chain(
    context: ssl.SSLContext, certificate: Path, key: Path, password: Secret | None
) -> None:
    try:
        word = "" if password is None else password.reveal()
    except ValueError as error:
        raise ConfigError([f"key_password: {error}"]) from None
    for path in (certificate, key):
        _readable(path)
    try:
        # without a password OpenSSL would ask the terminal for one
        context.load_cert_chain(certificate, key, password=lambda: word)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            [f"{certificate} with {key}: {reason_of(error, 'key_password')}"]
        ) from None


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError([f"{path}: {reason_of(error, 'key_password')}"]) from None


def _refuse_equal_names(context: ssl.SSLContext, path: Path) -> None:
    """Refuse two authorities of one name: they could issue certificates that have one identity."""
    names = Counter(_name(authority.get("subject", ())) for authority in context.get_ca_certs())
    problems = [
        f"{path}: {count} certificates have the subject {name!r}, expected one of each name (their "
        "clients could not be distinguished; after a renewal with the same key keep the newest)"
        for name, count in names.items()
        if count > 1
    ]
    if problems:
        raise ConfigError(problems)


def _load_revoked(context: ssl.SSLContext, path: Path) -> None:
    """Check each certificate of a client's chain against these lists (as ssl_crl of nginx does)."""
    _load_authorities(context, path)
    if not context.cert_store_stats()["crl"]:
        problem = "holds no certificate revocation list, expected PEM blocks named X509 CRL"
        raise ConfigError([f"{path}: {problem}"])
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _readable(path: Path) -> None:
    try:
        opened(path).close()  # before OpenSSL opens it, which would wait for a pipe
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from None


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the subject of the verified certificate of a client, as RFC 4514 writes it.

    ``CN=edge-1,O=Example``: the most specific part first, as Kafka's principals have it. Two
    subjects are never written alike. Where a subject is empty, its other names are taken, or else
    who issued it under which number. None without a certificate. ``certificate`` is what
    ``ssl.SSLObject.getpeercert()`` gives.
    """
    if not certificate:
        return None
    subject = _name(certificate.get("subject", ()))
    if subject:
        return subject
    others = ",".join(
        f"{kind}:{_escaped(str(value))}" for kind, value in certificate.get("subjectAltName", ())
    )
    return (
        others
        or f"serial {certificate.get('serialNumber')} of {_name(certificate.get('issuer', ()))}"
    )


def identity_of(connection: object) -> str | None:
    """Return whose certificate a client has shown: its subject, and who vouches for it.

    ``connection`` is the ``ssl_object`` of a transport. None without a certificate or without TLS.

    ``CN=edge-1,O=Example; issuer CN=Clients``, with one more ``; issuer`` for each intermediate
    authority. The names of authorities come from their own certificates in the verified chain.
    Hence all identities that an authority can issue end with the name of its own root, which is
    unique in ``client_ca``. A certificate that stands in ``client_ca`` itself gets its fingerprint.
    """
    if not isinstance(connection, ssl.SSLObject):
        return None
    subject = subject_of(connection.getpeercert())
    if subject is None:
        return None
    # Python has this method since 3.10; the public one of 3.13 returns bytes without names
    _, *authorities = cast(Any, connection)._sslobj.get_verified_chain()
    if not authorities:
        own = connection.getpeercert(binary_form=True) or b""
        return f"{subject}; sha256 {hashlib.sha256(own).hexdigest()}"
    return "; issuer ".join([subject, *(_name(one.get_info()["subject"]) for one in authorities)])


def refusal_of(error: ssl.SSLCertVerificationError) -> str:
    """Return why a client's certificate was refused, and what to do where the fault is a list's."""
    if error.verify_code in _CRL_FAULTS:
        what_to_do = "until client_crl holds a valid list of this authority"
        return f"{error.verify_message}: its clients are refused {what_to_do}"
    return error.verify_message


def _name(parts: Any) -> str:
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in several)
        for several in reversed(parts)
    )


def _escaped(value: str) -> str:
    text = "".join(
        f"\\{c}" if c in '"+,;<>\\=' else f"\\{ord(c):02X}" if c < " " else c for c in value
    )
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    if value.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text


_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: an expired certificate has names, too

_STEPS: Final = 10  # TLS 1.3 takes 2 of them


def certificate_warnings(settings: Settings) -> Iterator[Fault]:
    """Yield a warning for each advertised host that a listener's certificate does not cover."""
    for i, listener in enumerate(settings.listeners):
        hosts = _hosts(("listeners", i), listener)
        if listener.tls is None or not hosts:
            continue
        names = _names(listener.tls)
        if names is None:
            continue  # reported with the files
        for loc, host in hosts.items():
            if not any(_covers(kind, value, host) for kind, value in names):
                text = f"the certificate {listener.tls.certificate} does not cover '{host}'"
                yield Fault.of(loc, f"{text}: it has {_listed(names)}", ("listeners", i, "tls"))


def _hosts(at: Loc, listener: Listener) -> dict[Loc, str]:
    if listener.sni is not None:
        return {
            (*at, "sni", "bootstrap"): listener.sni.bootstrap,
            (*at, "sni", "broker"): listener.sni.broker,
        }
    return (
        {}
        if listener.advertised_host is None
        else {(*at, "advertised_host"): listener.advertised_host}
    )


def _names(tls: ListenerTls) -> list[tuple[str, str]] | None:
    """Return (DNS or IP Address, value) of a certificate; None where it cannot be read."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags(
        client.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    )
    try:
        server_certificate(server, tls)
        client.load_verify_locations(tls.certificate)
        shown = _shown(server, client)
    except (ConfigError, OSError):  # SSLError is an OSError
        return None
    names = [
        (kind, value)
        for kind, value in shown.get("subjectAltName", ())
        if kind in ("DNS", "IP Address")
    ]
    if names:
        return names
    parts = [part for several in shown.get("subject", ()) for part in several]
    return [("DNS", value) for name, value in parts if name == "commonName"]


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Return what a client sees of the server's certificate. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_STEPS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert() or {}


def _covers(kind: str, value: str, host: str) -> bool:
    """Return whether a name of a certificate covers a host, or some broker's (RFC 6125, 6.4)."""
    if kind == "IP Address":
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(value) == ipaddress.ip_address(host)
        return False
    value, host = value.lower(), host.lower()
    if value.startswith("*."):  # does not match a NODE after the first label
        return value[2:] == host.partition(".")[2]
    if NODE in host:  # which brokers there are is not known here
        return HostPattern.parse(host).node_of(value) is not None
    return value == host


def _listed(names: list[tuple[str, str]]) -> str:
    values = [value for _, value in names]
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return (", ".join(values[:5]) + more) or "no names"
