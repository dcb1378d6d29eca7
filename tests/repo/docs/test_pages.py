"""The pages of docs/ are short, and each is in the navigation of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.support.sources import ROOT
from tools import site_files
from tools.site_hooks import github_anchor, on_page_markdown

DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
MAX_LINES = 250


def pages_of(entries: Any) -> Iterator[str]:
    """Yield each page of a navigation."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from pages_of(entry)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_at_most_250_lines(page: str) -> None:
    lines = (DOCS / page).read_text("utf-8").count("\n")
    assert lines <= MAX_LINES, f"{page} has {lines} lines: split it by what a reader looks for"


@pytest.mark.parametrize("page", PAGES)
def test_blocks_in_lists_are_indented_by_four_spaces(page: str) -> None:
    """The site ends a list before a block with fewer, GitHub does not."""
    text = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text("utf-8"), flags=re.DOTALL | re.M)
    assert re.findall(r"^ {1,3}(?:```|\|).*", text, flags=re.M) == []


def test_each_page_is_in_the_navigation_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(
        page for page in pages_of(site["nav"]) if not page.startswith("https://")
    ) == sorted([*PAGES, *site_files.pages()])


def test_a_bar_in_the_code_of_a_table_needs_no_backslash_on_the_site() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/page.md"))
    config = SimpleNamespace(extra={"repository": "https://host/batchval"})
    text = "| `a\\|b` | c\\|d |\n`e\\|f`, [source](../../setup.py), [page](cli/README.md)\n"
    row, below = on_page_markdown(text, page, config).splitlines()
    assert row == "| `a|b` | c\\|d |"
    assert (
        below
        == "`e\\|f`, [source](https://host/batchval/blob/main/setup.py), [page](cli/README.md)"
    )


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("A request's way", "a-requests-way"),
        ("check: finding, report, note", "check-finding-report-note"),
        ("`kafka-segments`", "kafka-segments"),
        ("Extras of strict mode: S1 and up", "extras-of-strict-mode-s1-and-up"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert github_anchor(heading) == anchor
