"""Settings of Kafka's and librdkafka's, made into TLS and SASL; seen at a listener that asks for
certificates.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from batchval.network.errors import AuthenticationError
from batchval.network.sasl import ScramClient, authenticate
from batchval.network.security import Security, SecurityError
from batchval.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    mine = authority.issue_cert("someone@example.org")
    key, chain = (
        mine.private_key_pem.bytes(),
        b"".join(blob.bytes() for blob in mine.cert_chain_pems),
    )
    loaded = load_pem_private_key(key, None)
    locked = loaded.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )
    written = {
        "ca": authority.cert_pem.bytes(),
        "store": key + chain,
        "chain": chain,
        "key": key,
        "locked": locked,
    }
    for name, data in (written | {"jks": b"\xfe\xed\xfe\xed" + bytes(20)}).items():
        (tmp_path / name).write_bytes(data)
    return {path.name: str(path) for path in tmp_path.iterdir()}


async def sent_by_a_listener(authority: trustme.CA, security: Security) -> str:
    """The common words of a certificate that a listener was shown; it insists on one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.set_result(str(writer.get_extra_info("peercert")["subjectAltName"]))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        assert security.ssl_context is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=security.ssl_context)
        identified = await asyncio.wait_for(shown, 10)
        await reader.read()
        writer.close()
    return identified


@pytest.mark.parametrize("kind", ["store", "inline", "librdkafka", "librdkafka inline", "locked"])
async def test_certificates(authority: trustme.CA, files: dict[str, str], kind: str) -> None:
    def text(name: str) -> str:
        return Path(files[name]).read_text()

    properties = {
        "store": {
            "ssl.truststore.location": files["ca"],
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": files["store"],
            "ssl.keystore.type": "PEM",
        },
        "inline": {
            "ssl.truststore.certificates": text("ca"),
            "ssl.keystore.key": text("key"),
            "ssl.keystore.certificate.chain": text("chain"),
        },
        "librdkafka": {
            "ssl.ca.location": files["ca"],
            "ssl.certificate.location": files["chain"],
            "ssl.key.location": files["key"],
        },
        "librdkafka inline": {
            "ssl.ca.pem": text("ca"),
            "ssl.certificate.pem": text("chain"),
            "ssl.key.pem": text("key"),
        },
        "locked": {
            "ssl.ca.location": files["ca"],
            "ssl.certificate.location": files["chain"],
            "ssl.key.location": files["locked"],
            "ssl.key.password": "word",
        },
    }[kind]
    security = Security.from_properties({"security.protocol": "SSL", "linger.ms": 5, **properties})
    assert "someone@example.org" in await sent_by_a_listener(authority, security)


async def test_a_name_that_does_not_fit(authority: trustme.CA, files: dict[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example.org").configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        writer.close()

    async def read(properties: dict[str, str]) -> bytes:
        tls = Security.from_properties({"security.protocol": "ssl", **properties}).ssl_context
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            return await reader.read()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        believed = {"ssl.truststore.location": files["ca"]}
        with pytest.raises(ssl.SSLCertVerificationError):
            await read(believed)
        assert await read({**believed, "ssl.endpoint.identification.algorithm": ""}) == b"x"
        assert await read({**believed, "ssl.endpoint.identification.algorithm": "none"}) == b"x"
        with pytest.raises(ssl.SSLCertVerificationError):
            await read(
                {"ssl.endpoint.identification.algorithm": ""}
            )  # the system does not know this authority
        assert await read({"enable.ssl.certificate.verification": "false"}) == b"x"


def test_sasl() -> None:
    plain = Security.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.jaas.config": f'{PLAIN} username="a b" password="p\\"w;=";',
        }
    )
    assert (plain.mechanism, plain.username, plain.password) == ("PLAIN", "a b", 'p"w;=')
    assert plain.ssl_context is None
    assert plain.authenticate is not None
    assert 'p"w' not in repr(plain)
    scram = Security.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"{SCRAM} username='u' password=p;",
        }
    )
    assert (scram.mechanism, scram.username, scram.password) == ("SCRAM-SHA-512", "u", "p")
    assert scram.ssl_context is not None
    other = Security.from_properties(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "u",
            "sasl.password": "p",
        }
    )
    assert (other.mechanism, other.username, other.password) == ("SCRAM-SHA-256", "u", "p")
    nothing = Security.from_properties({})
    assert (nothing.protocol, nothing.ssl_context, nothing.authenticate) == (
        "PLAINTEXT",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS is none of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "needs a username and a password"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism GSSAPI is none of PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": "Krb5LoginModule required;"},
            "must begin with",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": f"{PLAIN} username=s3cret;"},
            "must have username",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.location": "jks",
                "ssl.truststore.type": "JKS",
            },
            r"not a PEM file \(JKS\)",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "jks"},
            "JKS and PKCS12 are not supported",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "nowhere"}, "nowhere: No such file"),
        ({"security.protocol": "SSL", "ssl.ca.location": "key"}, "^key: cannot be read"),
        ({"security.protocol": "SSL", "ssl.key.location": "key"}, "without a certificate"),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "chain"},
            "certificate and key: ",
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.certificate.location": "chain",
                "ssl.key.location": "locked",
            },
            "certificate and key: ",
        ),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"},
            "neither https nor empty",
        ),
    ],
)
def test_what_cannot_be_used_is_reported_in_one_line(
    files: dict[str, str], properties: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(files["ca"]).parent)
    with pytest.raises(SecurityError, match=message) as raised:
        Security.from_properties(properties)
    assert "\n" not in str(raised.value)
    assert "s3cret" not in str(raised.value)


async def test_the_cost_of_scram_is_not_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    final, threads = ScramClient.final, []

    def noted(client: ScramClient, server_first: bytes) -> bytes:
        threads.append(threading.get_ident())
        return final(client, server_first)

    class Scripted:
        async def request(self, request: Any) -> Any:
            if isinstance(request, SaslHandshakeRequest):
                return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
            nonce = bytes(request.auth_bytes).partition(b"r=")[2]
            return SaslAuthenticateResponse(auth_bytes=b"r=%sx,s=YQ==,i=4096" % nonce)

    monkeypatch.setattr(ScramClient, "final", noted)
    connection: Any = Scripted()
    with pytest.raises(AuthenticationError, match="does not know the password"):
        await authenticate(connection, "SCRAM-SHA-256", "a", "b")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_refused_handshake_names_its_error() -> None:
    class Scripted:
        async def request(self, _: Any) -> Any:
            return SaslHandshakeResponse(error_code=34, mechanisms=["PLAIN"])

    connection: Any = Scripted()
    text = r"refused SASL mechanism PLAIN \(ILLEGAL_SASL_STATE\): it offers PLAIN"
    with pytest.raises(AuthenticationError, match=text):
        await authenticate(connection, "PLAIN", "a", "b")
