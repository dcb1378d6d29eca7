"""Certificate authorities with names of a test's choice, their certificates, and their revocation
lists.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DAY = dt.timedelta(days=1)


def named(name: str) -> x509.Name:
    """Convert ``CN/O/…`` to a subject: the organization comes first, as in certificates."""
    common, _, organization = name.partition("/")
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """A root, or with ``parent`` an intermediate authority."""

    def __init__(self, name: str, parent: Authority | None = None) -> None:
        self.name = named(name)
        self.parent = parent
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._certify(self.name, self.key, parent or self, authority=True)

    @staticmethod
    def _certify(
        subject: x509.Name, key: Key, issuer: Authority, *, authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()),
                critical=False,
            )
        )
        if not authority:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
            )
        return builder.sign(issuer.key, hashes.SHA256())

    def issue(self, folder: Path, name: str, file: str, key: Key | None = None) -> x509.Certificate:
        """Write FILE.pem (with the intermediate authorities) and FILE.key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = self._certify(named(name), key, self, authority=False)
        (folder / f"{file}.pem").write_bytes(
            b"".join(map(pem, [certificate, *self._intermediates()]))
        )
        write_key(key, folder / f"{file}.key")
        return certificate

    def write_key(self, path: Path) -> None:
        """Write the authority's own key, for an authority that is a client itself."""
        write_key(self.key, path)

    def _intermediates(self) -> list[x509.Certificate]:
        return [] if self.parent is None else [self.certificate, *self.parent._intermediates()]

    def revoked(self, *certificates: x509.Certificate, days: float = 7) -> bytes:
        """Return the revocation list in PEM; with ``days`` below 0 it has expired."""
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - 10 * DAY)
            .next_update(now + days * DAY)
        )
        for certificate in certificates:
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now - DAY).build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def write_key(key: Key, path: Path) -> None:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
