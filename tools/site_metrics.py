"""Every metric of a gate with its labels and text, for the documentation site.

    python -m tools.site_metrics [WORD]      print the metrics whose name or text has a word
    python -m tools.site_metrics --markdown  print them as the site has them

``make docs`` prints them into a file, since the environment that builds the site has no gate; the
site appends them to docs/reference/proxy/metrics.md, whose own tables explain what belongs
together. A metric is declared where it is counted, or in ``Counters``; nothing repeats it here.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.pages.text import table

__all__ = ["markdown", "metrics"]

#: What has metrics of its own, besides what tests/system/deploy/gate_metrics.py sets.
_MORE: dict[str, Any] = {
    "log": {"audit_file": "/dev/null"},
    "metrics": {"otlp": {"endpoint": "http://127.0.0.1:1"}},
    "validation": {"kafka_version": "auto"},
}


def metrics(folder: str) -> Iterator[tuple[str, str]]:
    """Yield (name with labels, text) of each metric. ``folder``: of the gate's state, empty."""
    from batchval.proxy.life.reloading import Reloader
    from batchval.proxy.settings.loading import settings_from
    from batchval.proxy.workers.parent import gate_of
    from tests.system.deploy.gate_metrics import settings

    found = {"info{mode,version,python}": "What runs."}
    for workers in (1, 2):  # one process, and the parent of several
        gate = gate_of(settings_from(settings(Path(folder)) | _MORE | {"workers": workers}))
        gate.metrics.add(Reloader(gate, None, {}).families)
        for family in gate.metrics.families():
            labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
            suffix = "_total" if family.kind == "counter" else ""
            found[f"{family.name}{suffix}{labels}"] = family.text
    yield from found.items()


def markdown() -> str:
    """Return the section that the site appends to the page."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [(f"`{name}`", text) for name, text in sorted(metrics(folder))]
    return f"\n## All metrics\n\n{table(['metric', 'text'], rows)}\n"


def main(words: list[str]) -> int:
    """Print the metrics."""
    if words == ["--markdown"]:
        print(markdown(), end="")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sorted(metrics(folder)):
            if all(word.lower() in f"{name} {text}".lower() for word in words):
                print(f"{name}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
