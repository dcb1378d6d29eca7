"""The identity of a client's certificate: names that no other authority can issue, and certificates
that are revoked.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.settings.config import ListenerTls
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.tls.tls import identity_of
from tests.support.authorities import Authority, pem
from tests.support.secured import Context, SecuredServer, read_again

REFUSED = (ssl.SSLError, ConnectionError)


class Clients:
    """A server's certificate, and the authorities that its clients' certificates come from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = Authority("Servers")
        self.servers.issue(folder, "gate", "server")

    def settings(
        self, *trusted: Authority, revoked: bytes | None = None, **more: Any
    ) -> ListenerTls:
        files: dict[str, Any] = {
            "certificate": self.folder / "server.pem",
            "key": self.folder / "server.key",
        }
        files["client_ca"] = self.folder / "clients.pem"
        files["client_ca"].write_bytes(b"".join(pem(one.certificate) for one in trusted))
        if revoked is not None:
            files["client_crl"] = self.revoke(revoked)
        return ListenerTls.model_validate(files | more)

    def revoke(self, lists: bytes) -> Path:
        path = self.folder / "revoked.pem"
        path.write_bytes(lists)
        return path

    def context(self, file: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=pem(self.servers.certificate).decode())
        if file is not None:
            context.load_cert_chain(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        return context


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(tmp_path)


def serving(settings: ListenerTls) -> tuple[Context, SecuredServer]:
    context = Context(settings)
    return context, SecuredServer(lambda: context.context)


# ---- identities ----------------------------------------------------------------------------------


async def test_two_authorities_that_issue_the_same_subject(clients: Clients) -> None:
    authorities = [Authority("Clients/A"), Authority("Clients/B")]
    for n, authority in enumerate(authorities):
        authority.issue(clients.folder, "edge/Example", f"edge{n}")
    _, server = serving(clients.settings(*authorities))
    async with server:
        assert [await server.ask(clients.context(f"edge{n}")) for n in range(2)] == [
            "CN=edge,O=Example; issuer CN=Clients,O=A",
            "CN=edge,O=Example; issuer CN=Clients,O=B",
        ]


async def test_intermediate_authorities_of_the_same_name(clients: Clients) -> None:
    # Also one that is named like the other root, by an authority that imitates it.
    roots = [Authority("A"), Authority("B")]
    issuers = [
        Authority("Sub", roots[0]),
        Authority("Sub", roots[1]),
        Authority("A", roots[1]),
        roots[0],
    ]
    for n, issuer in enumerate(issuers):
        issuer.issue(clients.folder, "edge", f"edge{n}")
    _, server = serving(clients.settings(*roots))
    async with server:
        identities = [await server.ask(clients.context(f"edge{n}")) for n in range(4)]
    assert identities == [
        "CN=edge; issuer CN=Sub; issuer CN=A",
        "CN=edge; issuer CN=Sub; issuer CN=B",
        "CN=edge; issuer CN=A; issuer CN=B",
        "CN=edge; issuer CN=A",
    ]


async def test_a_subject_cannot_imitate_an_issuer(clients: Clients) -> None:
    authority = Authority("A")
    authority.issue(clients.folder, "edge; issuer CN=B", "edge")
    _, server = serving(clients.settings(authority, Authority("B")))
    async with server:
        assert await server.ask(clients.context("edge")) == r"CN=edge\; issuer CN\=B; issuer CN=A"


async def test_authorities_whose_names_differ_in_case_alone(clients: Clients) -> None:
    # OpenSSL takes the two names for one when it looks for an issuer; the identity has the
    # authority's own spelling.
    authorities = [Authority("Clients"), Authority("CLIENTS")]
    for n, authority in enumerate(authorities):
        authority.issue(clients.folder, "edge", f"edge{n}")
    _, server = serving(clients.settings(*authorities))
    async with server:
        identities = [await server.ask(clients.context(f"edge{n}")) for n in range(2)]
    assert identities == ["CN=edge; issuer CN=Clients", "CN=edge; issuer CN=CLIENTS"]


async def test_certificates_that_are_trusted_themselves(clients: Clients) -> None:
    owners = [Authority("edge"), Authority("edge/Example")]
    for n, owner in enumerate(owners):
        (clients.folder / f"edge{n}.pem").write_bytes(pem(owner.certificate))
        owner.write_key(clients.folder / f"edge{n}.key")
    _, server = serving(clients.settings(*owners))
    async with server:
        identities = [await server.ask(clients.context(f"edge{n}")) for n in range(2)]
    assert len(set(identities)) == 2
    assert identities[0].startswith("CN=edge; sha256 ")


async def test_a_client_without_a_certificate_has_none(clients: Clients) -> None:
    _, server = serving(clients.settings(Authority("A"), client_auth="optional"))
    async with server:
        assert await server.ask(clients.context(None)) == "None"
    assert identity_of(None) is None


def test_two_authorities_of_one_name_are_refused(clients: Clients) -> None:
    same = [Authority("Clients/A"), Authority("Clients/A"), Authority("Clients/B")]
    with pytest.raises(ConfigError, match=r"clients\.pem: 2 certificates have the subject"):
        Context(clients.settings(*same))
    # the same certificate twice is one
    Context(clients.settings(same[0], same[0], same[2]))


# ---- revocation ----------------------------------------------------------------------------------


async def test_a_revoked_certificate_is_refused_from_the_reload_on(
    clients: Clients,
) -> None:
    authority = Authority("Clients")
    stays = authority.issue(clients.folder, "stays", "stays")
    goes = authority.issue(clients.folder, "goes", "goes")
    context, server = serving(clients.settings(authority, revoked=authority.revoked()))
    async with server:
        assert (await server.ask(clients.context("goes"))).startswith("CN=goes")
        clients.revoke(authority.revoked(goes))
        assert (await server.ask(clients.context("goes"))).startswith("CN=goes")  # not read yet
        read_again(context)
        for _ in range(2):
            with pytest.raises(REFUSED):
                await server.ask(clients.context("goes"))
        assert (await server.ask(clients.context("stays"))).startswith("CN=stays")
        clients.revoke(b"half written")
        with pytest.raises(ConfigError, match=r"revoked\.pem"):
            read_again(context)
        with pytest.raises(REFUSED):
            await server.ask(clients.context("goes"))  # the old list holds
        clients.revoke(authority.revoked(goes, stays))
        read_again(context)
        with pytest.raises(REFUSED):
            await server.ask(clients.context("stays"))
    assert server.failures == ["certificate"] * 4
    assert server.handshakes.counters.handshakes_failed == {"certificate": 4}
    assert set(server.texts) == {"the client's certificate was refused: certificate revoked"}


FAULTS = {
    "expired": "CRL has expired",
    "of another authority": "unable to get certificate CRL",
    "signed with another key": "CRL signature failure",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_list_that_is_not_valid_refuses_its_clients_and_says_so(
    clients: Clients, fault: str
) -> None:
    authority = Authority("Clients")
    authority.issue(clients.folder, "edge", "edge")
    revoked = {
        "expired": authority.revoked(days=-1),
        "of another authority": Authority("Others").revoked(),
        "signed with another key": Authority("Clients").revoked(),
    }[fault]
    context, server = serving(clients.settings(authority, revoked=revoked))
    async with server:
        for _ in range(3):
            with pytest.raises(REFUSED):
                await server.ask(clients.context("edge"))
        clients.revoke(authority.revoked())
        read_again(context)
        assert (await server.ask(clients.context("edge"))).startswith("CN=edge")
    (text,) = set(server.texts)
    assert f"{FAULTS[fault]}: its clients are refused until client_crl holds a valid list" in text


async def test_a_revoked_intermediate_authority(clients: Clients) -> None:
    # Every certificate of the chain is looked up, so each authority has to have its list.
    root = Authority("Root")
    good, bad = Authority("Good", root), Authority("Bad", root)
    good.issue(clients.folder, "edge", "good")
    bad.issue(clients.folder, "edge", "bad")
    lists = root.revoked(bad.certificate) + good.revoked() + bad.revoked()
    context, server = serving(clients.settings(root, revoked=lists))
    async with server:
        assert (
            await server.ask(clients.context("good")) == "CN=edge; issuer CN=Good; issuer CN=Root"
        )
        with pytest.raises(REFUSED):
            await server.ask(clients.context("bad"))
        clients.revoke(good.revoked())  # the root's is missing
        read_again(context)
        with pytest.raises(REFUSED):
            await server.ask(clients.context("good"))


def test_files_that_hold_no_list(clients: Clients) -> None:
    authority = Authority("Clients")
    with pytest.raises(ConfigError, match=r"revoked\.pem: holds no certificate revocation"):
        Context(clients.settings(authority, revoked=pem(authority.certificate)))
    with pytest.raises(ConfigError, match=r"revoked\.pem: "):
        Context(clients.settings(authority, revoked=b""))
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        Context(clients.settings(authority, client_crl=clients.folder / "none.pem"))
