"""One question to a registry: what it may answer, and how long and how much."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchval.errors import ArgumentValueError
from batchval.schema_registry import RegistryClient, RegistryError, registry_client
from batchval.schema_registry.registry_client import MAX_ANSWER_BYTES, MAX_READ_BYTES, split_url
from tests.support.authorities import Authority
from tests.unit.schema_registry.scripted import ScriptedRegistry, answer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as running:
        running.subjects = {"orders-value": {1: 7, 3: 9}}
        yield running


def test_questions_and_answers(registry: ScriptedRegistry) -> None:
    client = RegistryClient(registry.url)
    assert client.versions("orders-value") == [1, 3]
    assert client.versions("other") is None
    assert client.id_of("orders-value", 3) == 9
    assert client.subjects_of(7) == {"orders-value"}
    assert client.subjects_of(8) == frozenset()
    client.versions("a/b ?")
    assert registry.asked["/subjects/a%2Fb%20%3F/versions"] == 1


def test_credentials_are_sent_and_never_shown(registry: ScriptedRegistry) -> None:
    client = RegistryClient(registry.url, credentials=lambda: ("gäte", "pl4nted"))
    registry.raw = answer(401, b'{"error_code": 401, "message": "no\\nentry"}')
    with pytest.raises(RegistryError, match=r"1/versions: HTTP 401: no\?entry$") as error:
        client.subjects_of(1)
    assert "pl4nted" not in str(error.value)
    word = base64.b64encode("gäte:pl4nted".encode()).decode()
    assert f"Authorization: Basic {word}" in registry.headers

    def unreadable() -> tuple[str, str]:
        raise ValueError("/run/secret: No such file")

    with pytest.raises(RegistryError, match="No such file"):
        RegistryClient(registry.url, credentials=unreadable).subjects_of(1)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "closed connection without response"),
        (b"SSH-2.0-x\r\n", "SSH-2.0-x"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "more than 100 headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, "header line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[", "IncompleteRead"),
        (CHUNKED + b"-2\r\n[]", "must be non-negative"),
        (
            CHUNKED + b"-1\r\n" + b" " * (MAX_READ_BYTES + 1),
            f"more than {MAX_READ_BYTES} bytes came",
        ),
        (answer(200, b"<html>"), "the answer is not JSON"),
        (answer(200, b"[" * 100_000), "the answer is not JSON"),
        (answer(200, b"9" * 10_000), "the answer is not JSON"),
        (answer(200, b"\xff"), "the answer is not JSON"),
        (answer(200, b"null"), "the answer is null"),
        (answer(200, b'{"a": 1}'), "expected a list of subjects and versions"),
        (answer(200, b"[1]"), "expected a list of subjects and versions"),
        (answer(200, b'[{"subject": 1}]'), "expected a list of subjects and versions"),
        (
            answer(200, b" " * (MAX_ANSWER_BYTES + 1)),
            f"the answer is longer than {MAX_ANSWER_BYTES} bytes",
        ),
        (answer(302, b"", "Location: http://127.0.0.1:1/"), "HTTP 302"),
        (answer(404, b"nothing here"), "HTTP 404"),
        (answer(404, b'{"error_code": 404, "message": "' + b"x" * 5000 + b'"}'), "HTTP 404: xxx"),
        (answer(404, b'{"error_code": [40403]}'), "HTTP 404"),
        (
            answer(500, b'{"error_code": 50001, "message": "Error in the backend"}'),
            "HTTP 500: Error in the backend",
        ),
    ],
)
def test_what_is_not_an_answer(registry: ScriptedRegistry, raw: bytes, text: str) -> None:
    registry.raw = raw
    with pytest.raises(RegistryError) as error:
        RegistryClient(registry.url).subjects_of(1)
    assert text in str(error.value)
    assert len(str(error.value)) < 400
    assert str(error.value).isprintable()


@pytest.mark.parametrize("parts", [(",", ""), (" ,\n", "\n "), ("\t,\r", " ")])
def test_long_lists_are_parsed_element_by_element(
    registry: ScriptedRegistry, parts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    between, around = parts
    names = [f"orders-{n}-é-value" for n in range(1_000)]
    listed = between.join(
        json.dumps({"subject": name, "version": 1}, ensure_ascii=False) for name in names
    )
    monkeypatch.setattr(registry_client.json, "loads", lambda _: pytest.fail("parsed in one call"))
    registry.raw = answer(200, f"[{around}{listed}{around}]{around}".encode())
    assert RegistryClient(registry.url).subjects_of(7) == set(names)
    monkeypatch.undo()
    for end in ("", "}", ",]", "] 1", "]]", "\xff]"):
        registry.raw = answer(200, f"[{listed}{end}".encode("latin-1"))
        with pytest.raises(RegistryError, match="the answer is not JSON"):
            RegistryClient(registry.url).subjects_of(7)


@pytest.mark.parametrize("body", [b"[true]", b"[-1]", b"[2147483648]", b'["1"]', b"{}"])
def test_versions_are_numbers(registry: ScriptedRegistry, body: bytes) -> None:
    registry.raw = answer(200, body)
    with pytest.raises(RegistryError, match="expected a list of versions"):
        RegistryClient(registry.url).versions("s")
    with pytest.raises(RegistryError, match="expected an object with an id"):
        RegistryClient(registry.url).id_of("s", 1)


def test_a_slow_answer_ends_in_time(registry: ScriptedRegistry) -> None:
    # However little comes at a time.
    registry.trickle = True
    began = time.monotonic()
    with pytest.raises(RegistryError, match="timed out"):
        RegistryClient(registry.url, timeout_s=0.3).subjects_of(7)
    assert time.monotonic() - began < 30  # a limit on a hang
    with pytest.raises(RegistryError, match="refused"):
        RegistryClient("http://127.0.0.1:1").subjects_of(7)


def test_tls(tmp_path: Path) -> None:
    authority = Authority("root")
    authority.issue(tmp_path, "localhost", "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(_pem(authority))
    with ScriptedRegistry(context) as registry:
        registry.subjects = {"s": {1: 7}}
        trusted = RegistryClient(
            registry.url, context=lambda: ssl.create_default_context(cafile=str(ca))
        )
        assert trusted.subjects_of(7) == {"s"}
        with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
            RegistryClient(registry.url).subjects_of(7)


def _pem(authority: Authority) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return authority.certificate.public_bytes(Encoding.PEM)


def test_urls() -> None:
    assert split_url("http://a") == ("http", "a", 80, "")
    assert split_url("https://[::1]:8081/api/v7/") == ("https", "::1", 8081, "/api/v7")
    for url in (
        "",
        "a:80",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://a?x",
        "http://a b",
        "http://ü",
        "http://u:p@a",
    ):
        with pytest.raises(ArgumentValueError, match="invalid URL"):
            RegistryClient(url)
