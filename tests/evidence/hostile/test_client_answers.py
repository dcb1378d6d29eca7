"""Answers to the package's own clients: whatever comes, an error or another request follows."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Any

import pytest

from batchval.network.connection import Connection
from batchval.producer.transaction_manager import Transactions
from tests.evidence.hostile.client_answers import CLIENTS, Case, client_case, cut_cases, run_case
from tests.evidence.hostile.plain_answers import PLAIN_CLIENTS
from tests.evidence.hostile.spoiled_peer import Spoiler

PAIRS = [(client, key) for client, (_, keys) in CLIENTS.items() for key in keys]
NO_API = 99
SEEDED = 12  # cases of each client; ``tests/evidence/hostile/fuzz.py`` runs the others
EVERY = 25  # th byte at which an answer is cut here


@pytest.mark.parametrize("client", CLIENTS)
def test_honest_answers_lead_to_success(client: str) -> None:
    """Check that the clients do what they are for: one that always fails would check nothing."""
    found, peer = run_case(Case(client, NO_API, "cut", 0, 1, 1))
    assert found == []
    assert peer.outcome.succeeded
    assert [one for one in peer.outcome.errors if client != "gate, discovery"] == []
    assert set(CLIENTS[client][1]) <= set(peer.seen) | {17, 36}


@pytest.mark.parametrize(("client", "key"), PAIRS)
def test_the_first_answer_may_be_cut_anywhere(client: str, key: int) -> None:
    cases = list(cut_cases(client, key))
    assert cases
    for case in islice(cases, key % EVERY, None, EVERY):
        assert run_case(case)[0] == []


@pytest.mark.long
@pytest.mark.parametrize(("client", "key"), PAIRS)
def test_the_first_answer_may_be_cut_at_each_byte(client: str, key: int) -> None:
    for case in cut_cases(client, key):
        assert run_case(case)[0] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_answers_may_be_broken_senseless_or_missing(client: str) -> None:
    for seed in range(SEEDED):
        assert client_case(client, seed) == []


@pytest.mark.parametrize("client", PLAIN_CLIENTS)
def test_answers_of_others_may_be_anything(client: str) -> None:
    logging.getLogger("batchval.proxy").setLevel(logging.CRITICAL)
    try:
        for seed in range(300):
            assert PLAIN_CLIENTS[client](seed) == []
    finally:
        logging.getLogger("batchval.proxy").setLevel(logging.NOTSET)


# ---- what the harness finds ----------------------------------------------------------------------


def test_a_lost_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_id(self: Transactions) -> None:
        self._asking_id = False
        raise LookupError("lost")

    monkeypatch.setattr(Transactions, "_ask_id", ask_id)
    found, _ = run_case(Case("producer", 22, "cut", 0, 1, 40))
    assert any("lost: Task exception was never retrieved" in one for one in found)


def test_a_wait_for_the_delivery_timeout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_id(self: Transactions) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(Transactions, "_ask_id", ask_id)
    found, peer = run_case(Case("producer", 18, "cut", 0, 1, 5))
    assert peer.spoiler.spoiled
    assert any("waited for the delivery timeout" in one for one in found)


def test_a_call_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_arm", lambda *_: None)  # no request times out
    monkeypatch.setattr(Spoiler, "_framed", lambda *_: [])  # never an answer
    found, _ = run_case(Case("producer", 0, "framed", 0, 1, 7))
    assert any("waited for the delivery timeout" in one for one in found), found


def test_a_failed_callback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, *_: Any) -> None:
        raise LookupError("lost")

    monkeypatch.setattr(Transactions, "hold", fails)
    found, _ = run_case(Case("producer, transactions", NO_API, "cut", 0, 1, 3))
    assert any("LookupError" in one for one in found)
