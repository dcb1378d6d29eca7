"""TLS and SASL from settings of Kafka and librdkafka.

security.protocol  PLAINTEXT | SSL | SASL_PLAINTEXT | SASL_SSL
ssl.truststore.*, ssl.keystore.* (PEM), ssl.ca.location, ssl.certificate.location,
    ssl.key.location …
sasl.mechanism, sasl.jaas.config or sasl.username and sasl.password
"""

from __future__ import annotations

import re
import ssl as tls
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from batchval.errors import ArgumentValueError
from batchval.named_files import read_whole
from batchval.network.connection import Connection
from batchval.network.sasl import authenticate

__all__ = ["PROPERTIES", "Security", "SecurityError", "reason_of"]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: Names that ``Security.from_properties`` reads.
PROPERTIES: Final = frozenset(
    {
        "security.protocol",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
    }
)

_JAAS_OPTION = re.compile(
    r"""([A-Za-z0-9_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)


class SecurityError(ArgumentValueError):
    """Invalid security settings; one line, without passwords."""


@dataclass(slots=True, kw_only=True)
class Security:
    """The security of connections: ``ssl_context`` and ``authenticate`` belong into
    ConnectionOptions and NetworkOptions.

    Raises SecurityError where the parts do not fit together.
    """

    protocol: str = "PLAINTEXT"
    ssl: tls.SSLContext | None = None  # None with SSL: what the system trusts
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.protocol = self.protocol.upper()
        if self.protocol not in PROTOCOLS:
            raise SecurityError(
                f"security.protocol {self.protocol} is none of {', '.join(PROTOCOLS)}"
            )
        if self.protocol.startswith("SASL"):
            self.mechanism = self.mechanism.upper()
            if self.mechanism not in MECHANISMS:
                raise SecurityError(
                    f"sasl.mechanism {self.mechanism} is none of {', '.join(MECHANISMS)}"
                )
            if self.username is None or self.password is None:
                raise SecurityError(f"{self.protocol} needs a username and a password")
        if self.protocol.endswith("SSL") and self.ssl is None:
            self.ssl = tls.create_default_context()

    @property
    def ssl_context(self) -> tls.SSLContext | None:
        """Return the value of ConnectionOptions.ssl: None without TLS."""
        return self.ssl if self.protocol.endswith("SSL") else None

    @property
    def authenticate(self) -> Callable[[Connection], Awaitable[None]] | None:
        """Return the value of NetworkOptions.authenticate: None without SASL."""
        if not self.protocol.startswith("SASL"):
            return None
        username, password = self.username, self.password
        assert username is not None
        assert password is not None
        return lambda connection: authenticate(connection, self.mechanism, username, password)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Read ``PROPERTIES`` and ignore all other names. Raises SecurityError."""
        settings = {
            name: str(value)
            for name, value in properties.items()
            if name in PROPERTIES and value is not None
        }
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        jaas = _jaas(settings["sasl.jaas.config"]) if "sasl.jaas.config" in settings else {}
        return cls(
            protocol=protocol,
            ssl=_context(settings) if protocol in ("SSL", "SASL_SSL") else None,
            mechanism=settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "PLAIN")),
            username=jaas.get("username", settings.get("sasl.username")),
            password=jaas.get("password", settings.get("sasl.password")),
        )


def _jaas(text: str) -> dict[str, str]:
    options = {
        match[1]: re.sub(
            r"\\(.)", r"\1", match[2] if match[2] is not None else match[3] or match[4] or ""
        )
        for match in _JAAS_OPTION.finditer(text)
    }
    if not text.split() or not text.split(maxsplit=1)[0].endswith(
        ("PlainLoginModule", "ScramLoginModule")
    ):
        raise SecurityError(
            "sasl.jaas.config must begin with a PlainLoginModule or a ScramLoginModule"
        )
    if "username" not in options or "password" not in options:
        raise SecurityError('sasl.jaas.config must have username="…" and password="…"')
    return options


def _context(settings: Mapping[str, str]) -> tls.SSLContext:
    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise SecurityError(
            f"ssl.endpoint.identification.algorithm {algorithm} is neither https nor empty"
        )
    context.check_hostname = algorithm == "https"
    if settings.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        context.check_hostname = False
        context.verify_mode = tls.CERT_NONE
    _trust(context, settings)
    _identify(context, settings)
    return context


def _trust(context: tls.SSLContext, settings: Mapping[str, str]) -> None:
    text = settings.get("ssl.truststore.certificates", settings.get("ssl.ca.pem"))
    name = "ssl.truststore.location" if "ssl.truststore.location" in settings else "ssl.ca.location"
    if text is None and name in settings:
        text = _pem(
            name,
            settings[name],
            settings.get("ssl.truststore.type") if "truststore" in name else None,
        )
    if text is None:
        context.load_default_certs(tls.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(cadata=text)
    except (tls.SSLError, ValueError) as error:
        raise SecurityError(
            f"{settings.get(name, 'the settings certificates')}: {reason_of(error)}"
        ) from None


def _identify(context: tls.SSLContext, settings: Mapping[str, str]) -> None:
    """Load the certificate chain and key, from one store or from two."""
    chain = settings.get("ssl.keystore.certificate.chain", settings.get("ssl.certificate.pem"))
    key = settings.get("ssl.keystore.key", settings.get("ssl.key.pem"))
    if "ssl.keystore.location" in settings:
        chain = _pem(
            "ssl.keystore.location",
            settings["ssl.keystore.location"],
            settings.get("ssl.keystore.type"),
        )
    if "ssl.certificate.location" in settings:
        chain = _pem("ssl.certificate.location", settings["ssl.certificate.location"], None)
    if "ssl.key.location" in settings:
        key = _pem("ssl.key.location", settings["ssl.key.location"], None)
    if chain is None:
        if key is not None:
            raise SecurityError("a key is configured without a certificate: set both or neither")
        return
    password = settings.get("ssl.key.password", "")
    # OpenSSL's wrapper reads files alone; this one has mode 600
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(chain + "\n" + (key or ""))
        file.flush()
        try:
            # without a password OpenSSL would ask the terminal for one
            context.load_cert_chain(file.name, password=lambda: password)
        except (tls.SSLError, OSError, ValueError) as error:
            raise SecurityError(f"certificate and key: {reason_of(error)}") from None


def _pem(name: str, path: str, kind: str | None) -> str:
    try:
        data = read_whole(Path(path))
    except OSError as error:
        raise SecurityError(f"{name}: {path}: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        kind_text = f" ({kind})" if kind else ""
        raise SecurityError(
            f"{name}: {path} is not a PEM file{kind_text}: JKS and PKCS12 are not supported; "
            "export it with keytool and openssl"
        )
    return data.decode("utf-8", "replace")


def reason_of(error: Exception, password: str = "password") -> str:
    """Return why certificates or a key were not taken; ``password`` is the setting of the key's."""
    if isinstance(error, tls.SSLError):
        known = {"KEY_VALUES_MISMATCH": "the key is not that of the certificate"}
        reason = error.reason or ""
        return known.get(
            reason,
            reason.lower().replace("_", " ") or f"cannot be read (a wrong or missing {password}?)",
        )
    return type(error).__name__
