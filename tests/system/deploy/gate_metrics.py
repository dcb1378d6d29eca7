"""The metrics of a gate that uses everything, and the metrics that PromQL expressions use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from batchval.proxy.life.reloading import Reloader
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.workers.parent import gate_of

PREFIX = "batchval_gate_"
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
#: Labels that Prometheus adds to every sample, and histograms to their buckets.
COMMON_LABELS = frozenset(("job", "instance", "namespace", "pod", "le"))


class Use(NamedTuple):
    """A metric in an expression, and the labels by which it is selected."""

    metric: str
    labels: frozenset[str]


def settings(folder: Path) -> dict[str, Any]:
    """Return settings with everything that has metrics of its own."""
    return {
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:2", "admin": {"mechanism": "NONE"}},
        "topics": {
            "policies": [
                {
                    "match": "*",
                    "record_rules": {"schema_id": {"registry": "default"}},
                    "custom_rules": ["builtins:len"],
                }
            ]
        },
        "schema_registries": [{"url": "http://127.0.0.1:1"}],
        "quarantine": str(folder / "quarantine"),
        "state_directory": str(folder),
    }


def metrics_of_a_gate(folder: Path) -> dict[str, frozenset[str]]:
    """Return the labels of each metric of /metrics, by its name in PromQL."""
    found: dict[str, frozenset[str]] = {}
    for workers in (1, 2):  # one process, and the parent of several
        gate = gate_of(settings_from(settings(folder) | {"workers": workers}))
        gate.metrics.add(Reloader(gate, None, {}).families)  # as the command does
        for family in gate.metrics.families():
            for suffix in _SUFFIXES[family.kind]:
                found[PREFIX + family.name + suffix] = frozenset(family.labels)
    return found | _of_the_process()


def _of_the_process() -> dict[str, frozenset[str]]:
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    text = generate_latest(registry).decode()
    return {name: frozenset() for name in re.findall(r"^(process_\w+) ", text, re.MULTILINE)} | {
        "up": frozenset()
    }


def uses(expression: str) -> list[Use]:
    """Return the metrics of an expression, with the labels of their selectors."""
    found = []
    for name, selector in re.findall(
        r"\b((?:batchval_gate|process)_\w+|up\b)(?:\{(.*?)\})?", expression
    ):
        found.append(Use(name, frozenset(re.findall(r'(\w+)(?:=~|!~|!=|=)"', selector))))
    return found


def grouped_by(expression: str) -> frozenset[str]:
    """Return the labels that an expression's aggregations name."""
    groups = re.findall(r"\b(?:by|without|on|ignoring) \((.*?)\)", expression)
    return frozenset(label.strip() for group in groups for label in group.split(","))


def unknown(expression: str, metrics: dict[str, frozenset[str]]) -> list[str]:
    """Return what an expression names that a gate does not have: metrics, and labels of metrics."""
    found = uses(expression)
    wrong = [use.metric for use in found if use.metric not in metrics]
    labels = COMMON_LABELS.union(*(metrics.get(use.metric, ()) for use in found))
    for use in found:
        if use.metric in metrics:
            wrong += [
                f"{use.metric}{{{one}}}" for one in use.labels - metrics[use.metric] - COMMON_LABELS
            ]
    return wrong + [f"by ({one})" for one in grouped_by(expression) - labels]
