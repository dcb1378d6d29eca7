"""One broker for all of these tests; and what runs where Go is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchval.policy import TopicPolicy
from batchval.proxy.settings.options import TopicPolicies
from tests.support.fixtures import poisoned, running_kafka  # noqa: F401
from tests.support.proxy import RunningProxy, eventually, run_both
from tests.system.interop.kafka_broker import KafkaBroker

HERE = Path(__file__).resolve().parent
GO_MOD = HERE / "go" / "go.mod"

HOUR = 3_600_000
UNBOUNDED = TopicPolicy(max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=2**63 - 1)
#: As the clients' programs make their topics.
POLICIES = TopicPolicies(
    UNBOUNDED,
    {
        "*-small": TopicPolicy(max_message_bytes=1000),
        "*-compact": TopicPolicy(cleanup_policy="compact"),
        "*-fresh": TopicPolicy(
            message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR
        ),
    },
)


def no_go() -> str | None:
    """Return why the Go client cannot run here, or None."""
    go = shutil.which("go")
    if go is None:
        return "go is not on the path"
    printed = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False
    ).stdout
    have = [int(part) for part in re.findall(r"\d+", printed)[:2]]
    match = re.search(r"^go (\d+)\.(\d+)", GO_MOD.read_text(), re.MULTILINE)
    assert match is not None
    need = [int(part) for part in match.groups()]
    return (
        None
        if have >= need
        else f"go is {printed.strip() or 'of no version'}, {GO_MOD.name} needs {match[0]}"
    )


# Go is nothing that a bare machine must have: left out, not skipped, and named in the header
collect_ignore = ["test_go_client.py", "test_sarama_client.py"] if no_go() else []


def pytest_report_header() -> str | None:
    reason = no_go()
    return (
        f"tests/system/chain/test_go_client.py and test_sarama_client.py are left out: {reason}"
        if reason
        else None
    )


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka(config={"num.partitions": 4}, heap="512m") as running:
        yield running


def both_ways(
    broker: KafkaBroker, command: Callable[[str, str, str], list[str]], prefix: str = ""
) -> tuple[dict[str, str], dict[str, str], RunningProxy]:
    """Return what a client prints ("name: text" lines) at the broker and, at the same time, through
    a gate; and the gate.

    ``command`` gets the bootstrap address, the prefix of its topics' names, and the ports that
    answers may name.
    """
    with RunningProxy(broker.bootstrap, policies=POLICIES) as gate:
        eventually(lambda: gate.proxy.listening)
        ports = ",".join(str(port) for port in sorted(gate.own_ports()))
        printed = run_both(
            command(broker.bootstrap, f"{prefix}direct-", str(broker.port)),
            command(gate.bootstrap, f"{prefix}gated-", ports),
        )
    direct, gated = (dict(line.split(": ", 1) for line in text.splitlines()) for text in printed)
    return direct, gated, gate
