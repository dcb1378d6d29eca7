"""Access rules, groups of KIP-848 and share groups: the Java clients see through the gate what they
see without it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchval.policy import TopicPolicy
from batchval.proxy.settings.options import TopicPolicies
from tests.support.proxy import RunningProxy, run_both
from tests.system.auth.conftest import USERS, Guarded
from tests.system.interop.kafka_broker import java_command

pytestmark = [pytest.mark.jvm, pytest.mark.long]

SOURCE = "tests/system/auth/java/Client.java"
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]  # it has much to say of what it may not do
POLICIES = TopicPolicies(TopicPolicy(), {"*-small": TopicPolicy(max_message_bytes=1000)})


@pytest.fixture(scope="module")
def seen(guarded: Guarded) -> Iterator[tuple[list[str], list[str], RunningProxy]]:
    with RunningProxy(guarded.sasl, policies=POLICIES) as gate:
        printed = run_both(
            *(
                java_command(
                    SOURCE, bootstrap, prefix, USERS["ann"], USERS["bob"], heap="256m", jvm=QUIET
                )
                for bootstrap, prefix in ((guarded.sasl, "jdirect-"), (gate.bootstrap, "jgated-"))
            )
        )
        direct, gated = (text.splitlines() for text in printed)
        yield direct, gated, gate


def test_each_line_is_the_same(seen: tuple[list[str], list[str], RunningProxy]) -> None:
    direct, gated, _ = seen
    # the gate validates a batch before the broker asks who sent it: the one line where two errors
    # compete
    both = "bob writes elsewhere what is too large: "
    assert f"{both}TopicAuthorizationException" in direct
    assert f"{both}TopicAuthorizationException" in gated
    assert gated == direct
    assert len(direct) >= 25


def test_the_run_was_what_it_was_meant_to_be(
    seen: tuple[list[str], list[str], RunningProxy],
) -> None:
    _, gated, _ = seen
    for line in (
        "bob writes without a rule: TopicAuthorizationException",
        "bob makes rules: ClusterAuthorizationException",
        "bob reads in another group: GroupAuthorizationException",
        "taken back: 3 of 3",
        "rules: []",
        "ann writes what is too large: RecordTooLargeException",
        "members 4: [1, 1, 1, 1]",
        "group: Consumer Stable 2",
        "committed: 80",
        "acknowledgements: [goes]",
        "bob shares: AuthorizationException",
    ):
        assert line in gated
    assert not [line for line in gated if "did not come to pass" in line]


def test_the_gate_was_on_the_way(seen: tuple[list[str], list[str], RunningProxy]) -> None:
    *_, gate = seen
    by_api = gate.proxy.traffic.requests_by_api()
    for key in (
        29,
        30,
        31,
        68,
        76,
        78,
        79,
    ):  # ACLs; ConsumerGroupHeartbeat; ShareGroupHeartbeat, -Fetch, -Acknowledge
        assert by_api.get(key, 0) > 0, key
    assert {(refusal.topic, refusal.error) for refusal in gate.refusals if refusal.enforced} == {
        ("jgated-small", "MESSAGE_TOO_LARGE")
    }
