"""The consumers of ``perf consume``: a client id for each thread."""

from __future__ import annotations

from typing import Any

import pytest

from batchval.perf.clients import consumers, own_consumer, rdkafka

ARGUMENTS = {
    "client": "batchval",
    "bootstrap_server": "127.0.0.1:1",
    "topic": "t",
    "include": None,
    "group": "g",
    "from_latest": False,
    "fetch_size": 1 << 20,
    "socket_buffer_size": None,
    "check_crcs": False,
    "decode": "records",
    "num_records": 1,
    "print_metrics": False,
}


def client_ids(
    monkeypatch: pytest.MonkeyPatch, client: str, properties: dict[str, str]
) -> list[Any]:
    """Return the client ids of three consumers that have not connected."""
    for place in (own_consumer, rdkafka):
        monkeypatch.setattr(place, "partitions_of", lambda *_: [("t", 0), ("t", 1), ("t", 2)])
    factory = consumers.open_client({**ARGUMENTS, "client": client}, properties, pytest.fail)
    made: list[Any] = [factory.make(thread) for thread in range(3)]
    for one in made:
        one.close()
    return [one._client_id if client == "librdkafka" else one._options.client_id for one in made]


@pytest.mark.parametrize("client", ["batchval", "librdkafka"])
def test_each_thread_has_a_client_id(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    found = client_ids(monkeypatch, client, {})
    assert found == ["consumer-g-1", "consumer-g-2", "consumer-g-3"]


@pytest.mark.parametrize("client", ["batchval", "librdkafka"])
def test_a_property_gives_all_one(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    assert client_ids(monkeypatch, client, {"client.id": "me"}) == ["me"] * 3
