"""Options of all clients: one error, with name, value and what is allowed. Times in messages."""

from __future__ import annotations

from typing import Any

import pytest

from batchval.errors import ArgumentValueError, BatchvalError, shown_ms
from batchval.fetch import ConsumerOptions
from batchval.network.client import ClientOptions
from batchval.network.security import Security


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"auto_offset_reset": "first"},
            "auto_offset_reset 'first': expected one of earliest, latest, none",
        ),
        (
            {"isolation_level": 1},
            "isolation_level 1: expected one of read_uncommitted, read_committed",
        ),
        (
            {"partition_assignment_strategy": []},
            "partition_assignment_strategy []: expected ['range']",
        ),
        ({"enable_auto_commit": True}, "enable_auto_commit True: expected a group_id"),
        ({"group_id": ""}, "group_id '': expected text that is not empty"),
        ({"fetch_max_bytes": 0}, "fetch_max_bytes 0: expected an integer, 1 to 2147483647"),
        ({"fetch_max_wait_ms": -1}, "fetch_max_wait_ms -1: expected an integer, 0 to 2147483647"),
        (
            {"send_buffer_bytes": True},
            "send_buffer_bytes True: expected an integer, 1 to 2147483647",
        ),
        (
            {"heartbeat_interval_ms": 2_000, "session_timeout_ms": 1_500},
            "heartbeat_interval_ms 2000: expected above 0 and below session_timeout_ms, 1500 ms",
        ),
        ({"bootstrap_servers": "a:99999"}, "server 'a:99999': expected host:port"),
        ({"bootstrap_servers": []}, "bootstrap servers []: expected at least one host:port"),
    ],
)
def test_options_of_a_consumer_that_do_not_fit(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentValueError) as raised:
        ConsumerOptions(**more)
    assert str(raised.value) == f"invalid {message}"


def test_one_type_of_error_for_all_options() -> None:
    for kind, more in (
        (ClientOptions, {"request_timeout_ms": -1}),
        (Security, {"protocol": "SSH"}),
    ):
        with pytest.raises(ArgumentValueError) as raised:
            kind(**more)
        assert isinstance(raised.value, BatchvalError)
        assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (2.5, "2.5 ms"),
        (10, "10 ms"),
        (99.9996, "100 ms"),
        (987.654, "988 ms"),
        (30_000.0, "30000 ms"),
        (1_500_000, "1500000 ms"),
        (1e15, "1000000000000000 ms"),
        (float("inf"), "inf ms"),
    ],
)
def test_times_in_messages_have_no_exponent(milliseconds: float, text: str) -> None:
    assert shown_ms(milliseconds) == text
