"""Settings reach the data path: who a sender is, what a topic allows, what all listeners share."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from batchval.core.claims import compute, to_tag
from batchval.protocol.messages.produce import ProduceResponse
from batchval.protocol.walkers.produce import CLAIMS_TAG
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import ConfigError, settings_from
from tests.support import batches
from tests.support.proxy import (
    COMPRESSED,
    ScriptedBroker,
    answered,
    batch,
    damaged,
    other_frame,
    produce_frame,
)


def tag(records: bytes, lie: bool = False) -> tuple[tuple[int, bytes], ...]:
    claims = compute(records)
    assert claims is not None
    if lie:
        claims = claims._replace(batch_min_timestamp=claims.batch_min_timestamp - 1)
    return ((CLAIMS_TAG, to_tag(claims, int.from_bytes(records[17:21], "big"))),)


async def asked(
    address: tuple[str, int], frame: bytes, tls: ssl.SSLContext | None = None
) -> dict[int, int]:
    """Return partition -> error code of the answer to a Produce request of one topic."""
    name = "127.0.0.1" if tls else None
    reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname=name)
    try:
        writer.write(frame)
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    finally:
        writer.close()
    (topic,) = ProduceResponse.decode(answer, 9).responses
    return {part.index: part.error_code for part in topic.partition_responses}


async def with_gate(
    broker: ScriptedBroker,
    use: Callable[[Gate], Any],
    listeners: list[dict[str, Any]],
    **more: Any,
) -> None:
    options = {
        "mode": "enforce",
        "listeners": listeners,
        "upstream": {"bootstrap": broker.address},
        "metrics": {"address": None},
    }
    gate = Gate(settings_from(options | more))
    await gate.start()
    try:
        await use(gate)
    finally:
        await gate.stop(0.2)


async def test_topics_allow_what_the_file_says_and_others_anything() -> None:
    rules = [
        {"match": "small.but.not", "max.message.bytes": 10_000_000},
        {"match": "small.*", "max.message.bytes": 500},
        {"match": "keyed", "cleanup.policy": "compact"},
    ]
    large, keyless = batch(b"x" * 3_000_000), batch(b"a", key=None)

    async def use(gate: Gate) -> None:
        at = gate.addresses["default"]
        assert await asked(at, produce_frame(1, ("other", 0, large))) == {0: 0}
        assert await asked(at, produce_frame(1, ("small.but.not", 0, large))) == {0: 0}
        assert await asked(
            at, produce_frame(1, ("small.one", 0, large), ("small.one", 1, batch(b"x")))
        ) == {
            0: 10,
            1: 0,
        }
        assert await asked(
            at, produce_frame(1, ("keyed", 0, keyless), ("keyed", 1, batch(b"x")))
        ) == {0: 87, 1: 0}
        assert await asked(at, produce_frame(1, ("other", 0, damaged(batch(b"x"))))) == {0: 2}

    with ScriptedBroker() as broker:
        await with_gate(broker, use, [{"address": "127.0.0.1:0"}], topics={"policies": rules})


@pytest.mark.parametrize(
    ("version", "length", "future"), [("3.9", 0, 0), ("4.1", 0, 32), ("4.4", 87, 32)]
)
async def test_the_version_of_kafka_decides(version: str, length: int, future: int) -> None:
    # A length that brokers before 4.4 do not check; a timestamp that brokers before 4.0 do not
    # bound.
    of_length = batches.of_wrong_length(batches.GZIP)
    next_century = batches.batch(base_timestamp=4_200_000_000_000, max_timestamp=4_200_000_000_000)

    async def use(gate: Gate) -> None:
        at = gate.addresses["default"]
        assert await asked(at, produce_frame(1, ("other", 0, of_length))) == {0: length}
        assert await asked(at, produce_frame(2, ("bounded", 0, next_century))) == {0: future}
        assert await asked(at, produce_frame(3, ("other", 0, next_century))) == {0: 0}

    with ScriptedBroker() as broker:
        validation = {"rules": "kafka", "kafka_version": version}
        topics = {"policies": [{"match": "bounded", "max.message.bytes": 1000}]}
        await with_gate(
            broker, use, [{"address": "127.0.0.1:0"}], validation=validation, topics=topics
        )


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[dict[str, Any], ssl.SSLContext]:
    """Return the listener's settings, and a client that is edge-1."""
    authority = trustme.CA()
    server, client = (
        authority.issue_cert("127.0.0.1"),
        authority.issue_cert("edge-1", common_name="edge-1"),
    )
    (tmp_path / "gate.pem").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
    server.private_key_pem.write_to_path(tmp_path / "gate.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client.configure_cert(context)
    files = {"certificate": "gate.pem", "key": "gate.key", "client_ca": "ca.pem"}
    return {key: str(tmp_path / name) for key, name in files.items()}, context


async def test_a_sender_is_its_certificate_and_is_known_at_every_listener(
    certificates: tuple[dict[str, Any], ssl.SSLContext],
) -> None:
    tls, client = certificates
    listeners = [
        {"address": "127.0.0.1:0", "name": "first", "tls": tls},
        {"address": "127.0.0.1:0", "name": "second", "tls": tls},
        {"address": "127.0.0.1:0", "name": "edge", "trusted": True},
        {"address": "127.0.0.1:0", "name": "anyone"},
    ]

    async def use(gate: Gate) -> None:
        at = gate.addresses
        honest = produce_frame(1, ("t", 0, COMPRESSED), tags=tag(COMPRESSED))
        lie = produce_frame(1, ("t", 0, COMPRESSED), tags=tag(COMPRESSED, lie=True))
        assert await asked(at["first"], honest, client) == {0: 0}
        assert await asked(at["edge"], honest) == {0: 0}
        assert await asked(at["anyone"], lie) == {0: 0}  # nobody's claims are not read
        ledger = gate.proxies["first"].gate.ledger
        assert ledger is not None
        sender, *others = ledger.senders()
        assert sender.startswith("certificate CN=edge-1")
        assert others == ["listener edge"]
        assert ledger.counts().honest == 2
        assert await asked(at["first"], lie, client) == {0: 0}  # a tag that lies changes no verdict
        assert ledger.counts(sender).demotions == 1
        assert await asked(at["second"], honest, client) == {0: 0}
        assert ledger.counts(sender).batches == 3
        text = gate.metrics.page()().decode()
        assert "batchval_gate_claims_lying_total 1.0" in text
        assert "batchval_gate_claims_senders 2.0" in text

    with ScriptedBroker() as broker:
        await with_gate(broker, use, listeners, claims_in="audit:0.5")
        assert not any(
            tag(COMPRESSED)[0][1] in frame for frame in broker.frames
        )  # claims_out: none


async def test_the_age_of_what_waits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.life.gate.LOOK_S", 0.05)

    async def use(gate: Gate) -> None:
        waiting = asyncio.ensure_future(
            asked(gate.addresses["default"], produce_frame(1, ("t", 0, batch(b"x"))))
        )
        while gate.pages.oldest.oldest_s < 0.3:
            await asyncio.sleep(0.02)
        assert broker.talking is not None
        assert "batchval_gate_requests_in_flight 1.0" in gate.metrics.page()().decode()
        broker.talking.sendall(answered(broker.frames[0]) or b"")
        assert await waiting == {0: 0}
        while gate.pages.oldest.oldest_s:
            await asyncio.sleep(0.02)

    with ScriptedBroker(lambda _: None) as broker:
        await with_gate(broker, use, [{"address": "127.0.0.1:0"}])


async def test_what_cannot_be_read_is_reported_before_anything_listens(tmp_path: Path) -> None:
    tls = {"certificate": str(tmp_path / "none.pem"), "key": str(tmp_path / "none.key")}
    with ScriptedBroker() as broker, pytest.raises(ConfigError, match=r"none\.pem"):
        await with_gate(broker, lambda _: None, [{"address": "127.0.0.1:0", "tls": tls}])


async def test_connections_are_bounded_at_each_listener_and_together() -> None:
    async def use(gate: Gate) -> None:
        held = []

        async def enters(name: str) -> bool:
            reader, writer = await asyncio.open_connection(*gate.addresses[name])
            held.append(writer)
            writer.write(other_frame(1))
            try:
                return bool(await reader.read(8))
            except ConnectionError:
                return False

        assert await enters("narrow")
        assert not await enters("narrow")
        assert [await enters("wide") for _ in range(3)] == [True, True, False]
        assert gate.counters.connections_refused_total == 2
        for writer in held:
            writer.close()
        while gate.counters.connections_open:
            await asyncio.sleep(0.01)
        assert await enters("narrow")
        held[-1].close()

    listeners = [
        {"address": "127.0.0.1:0", "name": "narrow", "max_connections": 1},
        {"address": "127.0.0.1:0", "name": "wide"},
    ]
    with ScriptedBroker() as broker:
        await with_gate(broker, use, listeners, limits={"max_connections": 3})
