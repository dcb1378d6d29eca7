"""deploy/grafana: the dashboard is whole, its queries are PromQL over metrics that a gate has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.system.deploy.conftest import DEPLOY
from tests.system.deploy.gate_metrics import unknown

BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "gate.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = BOARD["panels"]


def queries() -> Iterator[tuple[str, str]]:
    """Yield (what asks, the expression as Prometheus gets it)."""
    found = [
        (panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())
    ]
    found += [(note["name"], note["expr"]) for note in BOARD["annotations"]["list"]]
    for title, expression in found:
        yield (
            title,
            expression.replace("$__rate_interval", "5m")
            .replace("$job", "batchval-gate")
            .replace("$instance", ".*"),
        )


def test_each_query_uses_metrics_that_a_gate_has(metrics: dict[str, frozenset[str]]) -> None:
    assert len(list(queries())) > 40
    assert {
        title: wrong for title, expression in queries() if (wrong := unknown(expression, metrics))
    } == {}


def test_each_query_is_promql(promtool: Callable[..., str], tmp_path: Path) -> None:
    rules = [
        {"record": f"query_{n}", "expr": expression} for n, (_, expression) in enumerate(queries())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", path)


def test_panels_have_a_place_of_their_own_and_a_unit() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        left = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert left or above, (one, other)
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_queries_ask_the_data_source_and_the_gates_that_were_chosen() -> None:
    assert [one["name"] for one in BOARD["templating"]["list"]] == ["datasource", "job", "instance"]
    for panel in PANELS:
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
            assert target["expr"].count('{job=~"$job",instance=~"$instance"') >= 1, panel["title"]
