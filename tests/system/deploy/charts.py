"""Helm's linter and template engine over deploy/helm: a Go program that is built once.

python -m tests.system.deploy.charts          builds it, which takes half a minute the first time
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.go import GoMissing, built

SOURCE = Path(__file__).parent / "chart"
CHART = Path(__file__).parents[3] / "deploy" / "helm" / "batchval-gate"


@dataclass
class Rendered:
    """What a chart becomes with some values. ``manifests`` are (object, decoding error) pairs."""

    values: dict[str, Any]
    error: str
    lint: list[str]
    notes: str
    manifests: list[tuple[dict[str, Any], str]] = field(default_factory=list)

    def one(self, kind: str, name: str = "") -> dict[str, Any]:
        """Return the only object of a kind, or the one whose name ends so."""
        (found,) = [
            manifest
            for manifest, _ in self.manifests
            if manifest["kind"] == kind and manifest["metadata"]["name"].endswith(name)
        ]
        return found

    def kinds(self) -> list[str]:
        """Return the kinds of all objects."""
        return sorted(manifest["kind"] for manifest, _ in self.manifests)


def rendered(values: Sequence[Path]) -> list[Rendered]:
    """Lint and render the chart with each file of values. Raises GoMissing."""
    command = [str(built(SOURCE)), str(CHART), *map(str, values)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [
        Rendered(
            yaml.safe_load(Path(each["values"]).read_text("utf-8")),
            each["error"],
            each["lint"] or [],
            each["notes"],
            [(one["object"], one["error"]) for one in each["manifests"] or ()],
        )
        for each in json.loads(done.stdout)
    ]


if __name__ == "__main__":
    try:
        print(built(SOURCE))
    except GoMissing as missing:
        raise SystemExit(f"{missing}") from None
