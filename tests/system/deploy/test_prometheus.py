"""deploy/prometheus: alerts are sound, fire and rest as their tests say, over metrics of a gate."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from batchval.proxy.kit.end_reasons import CLIENT, REASONS
from tests.system.deploy.conftest import DEPLOY, ROOT
from tests.system.deploy.gate_metrics import unknown, uses

ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))[
        "groups"
    ]
    for rule in group["rules"]
]
TESTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text("utf-8"))["tests"]
PAGE = (ROOT / "docs" / "guide" / "gate-alerts.md").read_text("utf-8")
RUNBOOK = "https://github.com/batchval/batchval/blob/main/docs/guide/gate-alerts.md#"


def test_promtool_accepts_the_rules_and_their_tests_pass(promtool: Callable[..., str]) -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


def test_promtool_accepts_the_alerts_about_brokers(promtool: Callable[..., str]) -> None:
    """Find each attribute of the MBean, the name of a metric in the JMX exporter, in its class."""
    assert "2 rules found" in promtool("check", "rules", "broker-agent.yaml")
    promtool("test", "rules", "broker-agent_test.yaml")
    text = (DEPLOY / "prometheus" / "broker-agent.yaml").read_text("utf-8")
    attributes = set(re.findall(r"\bbatchval_claims_(\w+)", text))
    mbean = ROOT / "broker/broker-agent/src/main/java/batchval/broker/ClaimsMBean.java"
    assert attributes <= set(re.findall(r"long get(\w+)\(\)", mbean.read_text("utf-8")))
    anchors = set(re.findall(r"README\.md#([\w-]+)", text))
    assert anchors == {"the-agent-is-inactive"}
    assert "\n## The agent is inactive\n" in (ROOT / "broker/README.md").read_text("utf-8")


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_rests() -> None:
    names = [alert["alert"] for alert in ALERTS]
    fires, rests = set(), set()
    for test in TESTS:
        for one in test["alert_rule_test"]:
            (fires if one["exp_alerts"] else rests).add(one["alertname"])
    assert len(names) == len(set(names)) > 20
    assert fires == rests == set(names)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_it_uses_metrics_that_a_gate_has(
    alert: dict[str, Any], metrics: dict[str, frozenset[str]]
) -> None:
    assert uses(alert["expr"])
    assert unknown(alert["expr"], metrics) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_it_says_how_grave_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == RUNBOOK + alert["alert"].lower()
    assert f"## {alert['alert']}\n" in PAGE


def test_the_page_has_no_section_about_an_alert_that_does_not_exist() -> None:
    assert set(re.findall(r"^## (BatchvalGate\w+)$", PAGE, re.MULTILINE)) == {
        alert["alert"] for alert in ALERTS
    }


def test_the_page_names_the_alerts_for_people_on_call() -> None:
    sentence = PAGE.split("severity `critical`")[1].split("Those of severity")[0]
    critical = {alert["alert"] for alert in ALERTS if alert["labels"]["severity"] == "critical"}
    assert set(re.findall(r"BatchvalGate\w+", sentence)) == critical


def test_connections_that_end_without_a_fault_raise_no_alarm() -> None:
    (alert,) = (one for one in ALERTS if one["alert"] == "BatchvalGateClosesConnections")
    left_out = re.findall(r'reason!~"(.*?)"', alert["expr"])
    harmless = {word for word, reason in REASONS.items() if reason.level < logging.WARNING}
    assert set(left_out[0].split("|")) == harmless - {CLIENT}


def test_a_metric_or_a_label_that_a_gate_does_not_have_is_found(
    metrics: dict[str, frozenset[str]],
) -> None:
    assert unknown("batchval_gate_redy == 0", metrics) == ["batchval_gate_redy"]
    assert unknown('rate(batchval_gate_partitions_refused_total{rulle="x"}[5m])', metrics) == [
        "batchval_gate_partitions_refused_total{rulle}"
    ]
    assert unknown("sum by (topik) (batchval_gate_broken_rules_total)", metrics) == ["by (topik)"]
