"""Certificates, who shows them, and new ones without a new listener."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from batchval.proxy.settings.config import ListenerTls, UpstreamTls
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_types import Secret
from batchval.proxy.tls.tls import subject_of, upstream_context
from tests.support.secured import Context, SecuredServer, read_again


class Files:
    """Certificates and keys in a folder, as an operator would put them there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = trustme.CA(organization_name="Servers")
        self.clients = trustme.CA(organization_name="Clients")
        self.renew()

    def renew(self) -> None:
        self.servers.cert_pem.write_to_path(self.folder / "servers.pem")
        self.clients.cert_pem.write_to_path(self.folder / "clients.pem")
        self.put("server", self.servers.issue_cert("localhost", common_name="gate"))
        self.put(
            "client",
            self.clients.issue_cert("edge-1", common_name="edge-1", organization_name="Edge, Inc."),
        )

    def put(self, name: str, certificate: trustme.LeafCert) -> None:
        (self.folder / f"{name}.pem").write_bytes(
            b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )
        certificate.private_key_pem.write_to_path(self.folder / f"{name}.key")

    def listener(self, **more: Any) -> ListenerTls:
        options = {
            "certificate": self.folder / "server.pem",
            "key": self.folder / "server.key",
        } | more
        return ListenerTls.model_validate(options)

    def mutual(self, **more: Any) -> ListenerTls:
        return self.listener(client_ca=self.folder / "clients.pem", **more)

    def client(self, certificate: bool = True) -> ssl.SSLContext:
        options: dict[str, Any] = {"ca": self.folder / "servers.pem"}
        if certificate:
            options |= {
                "certificate": self.folder / "client.pem",
                "key": self.folder / "client.key",
            }
        return upstream_context(UpstreamTls.model_validate(options))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Server(SecuredServer):
    """Tells each client the name that it has shown."""

    def __init__(self, context: Context) -> None:
        super().__init__(lambda: context.context, lambda tls: subject_of(tls.getpeercert()))
        self.settings = context


async def test_the_sender_is_the_subject_of_the_certificate(files: Files) -> None:
    async with Server(Context(files.mutual())) as server:
        shown = await server.ask(files.client())
        assert re.fullmatch(r"CN=edge-1,OU=[^,]*,O=Edge\\, Inc\.", shown)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.ask(files.client(certificate=False))
    async with Server(Context(files.mutual(client_auth="optional"))) as server:
        assert await server.ask(files.client(certificate=False)) == "None"
        assert (await server.ask(files.client())).startswith("CN=edge-1")
    async with Server(Context(files.listener())) as server:
        assert (
            await server.ask(files.client()) == "None"
        )  # nobody asked for it, so nobody verified it


async def test_a_certificate_of_another_authority_is_refused(files: Files) -> None:
    async with Server(Context(files.mutual())) as server:
        stranger = trustme.CA(organization_name="Clients")
        files.put("client", stranger.issue_cert("edge-1", common_name="edge-1"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.ask(files.client())


async def test_new_certificates_hold_from_the_next_connection_on(files: Files) -> None:
    async with Server(Context(files.mutual())) as server:
        first = files.client()
        assert (await server.ask(first)).startswith("CN=edge-1")
        files.servers, files.clients = trustme.CA(), trustme.CA()
        files.renew()
        assert (await server.ask(first)).startswith("CN=edge-1")  # not yet
        second = files.client()
        with pytest.raises(ssl.SSLError):
            await server.ask(second)
        read_again(server.settings)
        assert (await server.ask(second)).startswith("CN=edge-1")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.ask(first)  # neither side believes the other any more
        # an authority that is gone is gone, also for clients that had a session
        half = files.client()
        files.clients = trustme.CA()
        files.renew()
        assert (await server.ask(half)).startswith("CN=edge-1")
        read_again(server.settings)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.ask(half)


async def test_after_a_failed_reload_the_old_ones_hold(files: Files) -> None:
    async with Server(Context(files.mutual())) as server:
        client = files.client()
        for name in ("server.pem", "server.key", "clients.pem"):
            kept = (files.folder / name).read_bytes()
            (files.folder / name).write_text("no certificate")
            with pytest.raises(ConfigError, match=name):
                read_again(server.settings)
            assert (await server.ask(client)).startswith("CN=edge-1")
            (files.folder / name).write_bytes(kept)
        read_again(server.settings)
        assert (await server.ask(client)).startswith("CN=edge-1")


async def test_nothing_below_tls_1_2(files: Files) -> None:
    async with Server(Context(files.listener())) as server:
        old = ssl.create_default_context(cafile=str(files.folder / "servers.pem"))
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await server.ask(old) == "None"
    async with Server(Context(files.listener(minimum_version="1.3"))) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.ask(old)
    assert Context(files.listener()).context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert files.client().minimum_version == ssl.TLSVersion.TLSv1_2


async def test_brokers_are_verified(files: Files) -> None:
    async with Server(Context(files.listener())) as server:
        client = files.client()
        assert await server.ask(client) == "None"
        files.put("server", files.servers.issue_cert("elsewhere"))
        read_again(server.settings)
        with pytest.raises(ssl.SSLCertVerificationError):
            await server.ask(client)


def test_files_that_are_not_what_they_should_be(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        Context(files.listener(certificate=files.folder / "none.pem"))
    with pytest.raises(ConfigError, match="the key is not that of the certificate"):
        Context(files.listener(key=files.folder / "client.key"))
    monkeypatch.delenv("GATE_KEY", raising=False)
    with pytest.raises(ConfigError, match="the environment has no GATE_KEY"):
        Context(files.listener(key_password=Secret(env="GATE_KEY")))
    (files.folder / "server.pem").write_text("none")
    with pytest.raises(ConfigError, match=r"server\.pem"):
        Context(files.listener())


def certificate(*parts: tuple[tuple[str, str], ...], **more: Any) -> dict[str, Any]:
    return {"subject": parts} | more


def test_no_two_subjects_are_written_alike() -> None:
    name = (("commonName", "a"),)
    subjects = [
        certificate(name, (("organizationName", "b"),)),
        certificate((("organizationName", "b"),), name),
        certificate((("commonName", "b,CN=a"),)),
        certificate((("commonName", "b+CN=a"),)),
        certificate((("commonName", "a"), ("organizationName", "b"))),
        certificate((("commonName", " a"),)),
        certificate((("commonName", "a "),)),
        certificate((("commonName", "a\n"),)),
        certificate((("commonName", "a\\0A"),)),
        certificate((("commonName", "#a"),)),
        certificate(subjectAltName=(("DNS", "a"), ("DNS", "b"))),
        certificate(subjectAltName=(("DNS", "a,DNS:b"),)),
        certificate(serialNumber="01", issuer=(name,)),
        certificate(serialNumber="02", issuer=(name,)),
    ]
    written = [subject_of(one) for one in subjects]
    assert len(set(written)) == len(subjects)
    assert None not in written
    assert all("\n" not in str(one) for one in written)
    assert subject_of(None) is subject_of({}) is None
