"""One Apache Kafka 4.4.0 broker that asks who comes, by password, token or certificate, and what
each may do.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.fixtures import needs_kafka
from tests.support.old_clients import installed
from tests.support.ports import free_port
from tests.system.interop.kafka_broker import KafkaBroker

LOGIN = "org.apache.kafka.common.security"
USERS = {"ann": "s3cret-of-ann", "gate": "s3cret-of-gate", "bob": "s3cret-of-bob"}
SUPER = "User:ANONYMOUS;User:ann;User:gate;User:CN=trusted-client"


class Certificates:
    """One authority, and PEM files as brokers, gates and clients want them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue("server", "127.0.0.1", "localhost")
        self.issue("client", "trusted-client", common_name="trusted-client")

    def issue(self, name: str, *names: str, common_name: str | None = None) -> None:
        """Write NAME.pem, NAME.key, and NAME.store with both, in PKCS #8 as Java reads it."""
        leaf = self.authority.issue_cert(*names, common_name=common_name)
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.path(f"{name}.pem").write_bytes(chain)
        self.path(f"{name}.key").write_bytes(pem)
        self.path(f"{name}.store").write_bytes(pem + chain)

    def path(self, name: str) -> Path:
        return self.folder / name

    def pair(self, name: str) -> dict[str, str]:
        """Return the files as settings of the gate."""
        return {"certificate": str(self.path(f"{name}.pem")), "key": str(self.path(f"{name}.key"))}

    def librdkafka(self, name: str | None = None) -> dict[str, Any]:
        """Return the files as librdkafka's configuration."""
        known: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}
        if name is not None:
            known["ssl.certificate.location"] = str(self.path(f"{name}.pem"))
            known["ssl.key.location"] = str(self.path(f"{name}.key"))
        return known

    def context(self, name: str | None = None) -> ssl.SSLContext:
        """Return the context of a client in the test's process."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name is not None:
            context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        return context


@dataclass
class Guarded:
    """``plain`` is the listener where everybody is ANONYMOUS, who may do anything."""

    broker: KafkaBroker
    sasl: str
    tls: str
    certificates: Certificates

    @property
    def plain(self) -> str:
        return self.broker.bootstrap


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def old_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of client releases that run in processes of their own."""
    return installed(tmp_path_factory.mktemp("old-clients"))


@pytest.fixture(scope="session")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Guarded]:
    needs_kafka()
    broker = KafkaBroker(tmp_path_factory.mktemp("guarded"), heap="512m")
    sasl, tls = free_port(), free_port()
    advertised = f"PLAINTEXT://127.0.0.1:{broker.port},SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}"
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
    passwords = " ".join(f'user_{name}="{word}"' for name, word in USERS.items())
    broker.config.update(
        {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                [*(f"{name}:{name}" for name in names), "CONTROLLER:PLAINTEXT"]
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            **{
                f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config": f"{LOGIN}.{module} required {more};"
                for mechanism, module, more in (
                    ("plain", "plain.PlainLoginModule", passwords),
                    ("scram-sha-256", "scram.ScramLoginModule", ""),
                    ("scram-sha-512", "scram.ScramLoginModule", ""),
                    (
                        "oauthbearer",
                        "oauthbearer.OAuthBearerLoginModule",
                        'unsecuredLoginStringClaim_sub="broker"',
                    ),
                )
            },
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.path("server.store"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca,
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/CN=$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER,
            "connections.max.reauth.ms": 2000,
            # members of the new groups hear of each other by heartbeats, of which the defaults are
            # 5 s apart
            **{
                f"group.{kind}.{least}heartbeat.interval.ms": 100
                for kind in ("consumer", "share")
                for least in ("", "min.")
            },
        }
    )
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for kind in (
            ScramMechanism.SCRAM_SHA_256,
            ScramMechanism.SCRAM_SHA_512,
        ):  # one of each user a request
            credentials = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), word.encode())
                for user, word in USERS.items()
            ]
            for future in admin.alter_user_scram_credentials(credentials).values():
                future.result(20)
        yield Guarded(broker, f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", certificates)
