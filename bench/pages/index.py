"""docs/benchmarks/README.md: what the pages compare, and when each was measured."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from bench.pages.text import date_of, page, paragraph, table


def _when(results: dict[str, dict[str, Any]], sources: tuple[str, ...]) -> str:
    """Return days and commits of all sources, each once."""
    found = (
        f"{date_of(results[name])}, `{results[name]['machine']['commit']}`" for name in sources
    )
    return "; ".join(dict.fromkeys(found))


def _command(of: ModuleType) -> str:
    """Return the command that measures a page, or a link to the commands of one that has several."""
    return f"`{of.COMMAND}`" if of.COMMAND else "[several](method.md#to-measure-again)"


def render(results: dict[str, dict[str, Any]], pages: dict[str, ModuleType]) -> str:
    """Return the index."""
    rows = (
        [f"[{of.TITLE}]({name}.md)", of.ABOUT, _when(results, of.SOURCES), _command(of)]
        for name, of in pages.items()
    )
    return page(
        "# Benchmarks",
        paragraph(
            "Each page is rendered from the results in [bench/results](../../bench/results). Its",
            "first sentences name the machine, the versions, the day and the commit.",
        ),
        table(("page", "compares", "measured, commit", "to measure again"), rows),
        paragraph(
            "How it is measured, with which versions, and what limits the figures:",
            "[method](method.md). Ratios carry from machine to machine better than times.",
        ),
        "![Time to validate one record batch, batchval and Apache Kafka, by codec](validation.svg)",
    )
