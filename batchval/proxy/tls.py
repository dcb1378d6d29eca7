"""TLS on both sides: contexts from settings, certificates read anew on demand, and the name in a client's certificate.

A listener keeps one context for as long as it lives. Each handshake is handed to the newest one behind it, so that new
certificates, keys and authorities hold from the next connection on, and those that live are not touched.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchval.proxy.config import ListenerTls, UpstreamTls
from batchval.proxy.loading import ConfigError
from batchval.proxy.secret import Secret

__all__ = ["ListenerContext", "UpstreamContext", "subject_of"]

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


class ListenerContext:
    """For one listener. ``context`` is what a server is started with. ConfigError where the files are not what they
    should be; after a failed ``reload`` the old ones hold."""

    def __init__(self, settings: ListenerTls) -> None:
        self.settings = settings
        self._newest = _server_context(settings)
        self.context = _server_context(settings)
        self.context.sni_callback = self._hand_over

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = self._newest

    def reload(self) -> None:
        """Reads the files again."""
        self._newest = _server_context(self.settings)


class UpstreamContext:
    """For connections to brokers: ``context`` is to be asked for at each."""

    def __init__(self, settings: UpstreamTls) -> None:
        self.settings = settings
        self.context = _client_context(settings)

    def reload(self) -> None:
        """Reads the files again."""
        self.context = _client_context(self.settings)


def _server_context(settings: ListenerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    # a resumed session would outlive the authority that vouched for it
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    _load_chain(context, settings.certificate, settings.key, settings.key_password)
    if settings.client_ca is not None:
        _load_authorities(context, settings.client_ca)
    context.verify_mode = _CLIENT_AUTH[settings.client_certificates]
    return context


def _client_context(settings: UpstreamTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    context.minimum_version = _VERSIONS[settings.minimum_version]
    if settings.ca is not None:
        _load_authorities(context, settings.ca)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.certificate is not None and settings.key is not None:
        _load_chain(context, settings.certificate, settings.key, settings.key_password)
    return context


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path, password: Secret | None) -> None:
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
        raise ConfigError([f"{certificate} with {key}: {_reason(error)}"]) from None


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError([f"{path}: {_reason(error)}"]) from None


def _readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        known = {"KEY_VALUES_MISMATCH": "the key is not that of the certificate"}
        reason = error.reason or ""
        return known.get(
            reason, reason.lower().replace("_", " ") or "cannot be read (a wrong or missing key_password?)"
        )
    return type(error).__name__


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject of the certificate that a client has shown and that was verified, as RFC 4514 writes it.

    ``CN=edge-1,O=Example``: the most specific part first, as Kafka's principals have it. Two subjects are never written
    alike. Where a subject is empty, its other names are taken, or else who issued it under which number. None without
    a certificate. ``certificate`` is what ``ssl.SSLObject.getpeercert()`` gives.
    """
    if not certificate:
        return None
    subject = _name(certificate.get("subject", ()))
    if subject:
        return subject
    others = ",".join(f"{kind}:{_escaped(str(value))}" for kind, value in certificate.get("subjectAltName", ()))
    return others or f"serial {certificate.get('serialNumber')} of {_name(certificate.get('issuer', ()))}"


def _name(parts: Any) -> str:
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in several)
        for several in reversed(parts)
    )


def _escaped(value: str) -> str:
    text = "".join(f"\\{c}" if c in '"+,;<>\\=' else f"\\{ord(c):02X}" if c < " " else c for c in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    if value.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text
