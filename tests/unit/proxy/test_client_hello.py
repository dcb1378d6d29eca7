"""The server name in a ClientHello: as OpenSSL writes it, cut short and changed."""

from __future__ import annotations

import random
import ssl
import struct

import pytest

from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.tls.handshakes import HandshakeError
from batchval.proxy.tls.sni import MAX_EXTENSIONS, node_asked_for, server_name_of

NAMES = ServerNames("Kafka.Example.com", "Broker-{node}.kafka.example.com")


def hello(name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return the first record of OpenSSL's client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def built(*extensions: tuple[int, bytes], count: bool = True) -> bytes:
    """Return a ClientHello with these extensions alone."""
    listed = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    body = struct.pack(">H32sBHHBB", 0x0303, b"r" * 32, 0, 2, 0x1301, 1, 0)
    if count:
        body += struct.pack(">H", len(listed)) + listed
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def named(name: bytes, kind: int = 0) -> tuple[int, bytes]:
    return 0, struct.pack(">HBH", len(name) + 3, kind, len(name)) + name


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_that_openssl_sends(version: ssl.TLSVersion) -> None:
    assert server_name_of(hello("kafka.example.com", version)) == b"kafka.example.com"
    assert server_name_of(hello(None, version)) is None


def test_built_ones() -> None:
    assert server_name_of(built(named(b"a.b"))) == b"a.b"
    assert server_name_of(built((43, b"\x02\x03\x04"), (10, b""), named(b"a.b"))) == b"a.b"
    assert server_name_of(built()) is None
    assert server_name_of(built(count=False)) is None  # TLS 1.2 allows it
    longest = b"a" * 255
    assert server_name_of(built(named(longest))) == longest


@pytest.mark.parametrize(
    "extension",
    [
        named(b""),
        named(b"a" * 256),
        named(b"a.b", kind=1),
        (0, b""),
        (0, named(b"a.b")[1][:-1]),
        (0, named(b"a.b")[1] + b"\0"),
        (0, struct.pack(">HBH3sBH1s", 10, 0, 3, b"a.b", 0, 1, b"c")),  # two names
    ],
)
def test_names_that_openssl_refuses_too(extension: tuple[int, bytes]) -> None:
    with pytest.raises(ValueError, match="server name that is not one of 1 to 255 bytes"):
        server_name_of(built(extension))


def test_every_cut_and_many_changes() -> None:
    # Only ValueError, whatever the bytes are; nothing is read past the end of a record.
    whole = hello("kafka.example.com")
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="ClientHello"):
            server_name_of(whole[:size])
    seeded, found = random.Random(18), set()
    for _ in range(20_000):
        changed = bytearray(whole)
        for _ in range(seeded.randint(1, 4)):
            changed[seeded.randrange(5, len(changed))] = seeded.choice(
                (0, 1, 0xFF, seeded.randrange(256))
            )
        try:
            found.add(type(server_name_of(bytes(changed))))
        except ValueError:
            found.add(ValueError)
    assert found == {bytes, type(None), ValueError}


def test_few_extensions_are_looked_at() -> None:
    most = [(21, b"")] * (MAX_EXTENSIONS - 1)
    assert server_name_of(built(*most, named(b"a.b"))) == b"a.b"
    with pytest.raises(ValueError, match=f"more than {MAX_EXTENSIONS} extensions"):
        server_name_of(built(*most, (21, b""), named(b"a.b")))


def test_whom_a_client_asks_for() -> None:
    def asked(name: bytes) -> int | None:
        return node_asked_for(built(named(name)), NAMES)

    assert asked(b"kafka.example.com") is None
    assert asked(b"KAFKA.example.COM.") is None
    assert asked(b"broker-0.kafka.example.com") == 0
    assert asked(b"BROKER-17.Kafka.example.com.") == 17
    assert asked(b"broker-2147483647.kafka.example.com") == 2**31 - 1


@pytest.mark.parametrize(
    "name",
    [
        b"broker-01.kafka.example.com",
        b"broker-.kafka.example.com",
        b"broker--1.kafka.example.com",
        b"broker-2147483648.kafka.example.com",
        b"broker-" + b"9" * 200 + b".kafka.example.com",
        b"broker-1.kafka.example.com..",
        b"broker-{node}.kafka.example.com",
        "broker-١.kafka.example.com".encode(),
        b"broker-1.kafka.example.com\0",
        b"example.com",
        b"a" * 255,
        b"\xff\xfe",
        b"127.0.0.1",
    ],
)
def test_names_that_this_listener_does_not_have(name: bytes) -> None:
    with pytest.raises(HandshakeError) as failed:
        node_asked_for(built(named(name)), NAMES)
    assert (failed.value.reason, failed.value.alert) == ("sni_unknown", 112)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 500


def test_no_name_and_no_client_hello() -> None:
    for record, reason, alert in (
        (built(), "sni_missing", 109),
        (built(named(b"")), "malformed", 50),
    ):
        with pytest.raises(HandshakeError) as failed:
            node_asked_for(record, NAMES)
        assert (failed.value.reason, failed.value.alert) == (reason, alert)
