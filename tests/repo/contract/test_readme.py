"""The README is short, is right on a package index too, and shows the saved results of the
benches.
"""

from __future__ import annotations

import html.parser
import json
from pathlib import Path

import pytest
import readme_renderer.markdown

from bench import pages
from bench.pages import __main__ as all_pages
from tests.repo.contract.test_docs import WEB
from tests.support.benches import folders_to_save_in
from tests.support.sources import ROOT

README = (ROOT / "README.md").read_text("utf-8")


class Links(html.parser.HTMLParser):
    """Collects the targets of links and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[str] = []
        self.pictures: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a" and not str(found["href"]).startswith("#"):  # of a heading, to itself
            self.pages.append(str(found["href"]))
        elif tag == "img":
            assert found["alt"], found
            self.pictures.append(str(found["src"]))


@pytest.fixture(scope="module")
def links() -> Links:
    """Return what the README links to where a package index renders it."""
    rendered = readme_renderer.markdown.render(README)
    assert rendered is not None
    assert rendered.count("<table>") == README.count("|---|") + README.count("| --- |\n")
    found = Links()
    found.feed(rendered)
    return found


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_links_and_pictures_are_absolute(links: Links) -> None:
    assert len(links.pages) > 10
    assert len(links.pictures) == 2
    file, picture = WEB
    assert all(target.startswith("https://") for target in links.pages)
    assert all(target.startswith(picture) and target.endswith(".svg") for target in links.pictures)
    assert not [target for target in links.pages if target.startswith(picture)]
    for target in links.pages:
        if target.startswith(file):
            assert (ROOT / target.removeprefix(file)).is_file(), target


def test_pages_chart_and_figures_are_those_of_the_results() -> None:
    texts = all_pages.documents() | all_pages.readme()
    assert all_pages.different(texts) == [], "make bench-pages writes them"


def test_a_new_result_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Save a result: the pages change at once, the README only by the command."""
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(README)
    assert all_pages.main([]) == 0
    assert all_pages.main(["--check"]) == 0
    result = pages.read("validation")
    result["machine"] |= {"commit": "0123abc", "processor": "Another(R) Processor, 2 cores"}
    for row in result["rows"]:
        row.update({"ours_ns": 77_000.0} if "ours_ns" in row else {})
    pages.save("validation", result)
    assert json.loads((results / "validation.json").read_text()) == result
    assert "77 µs" in (docs / "validation.svg").read_text()
    assert (tmp_path / "README.md").read_text() == README
    assert all_pages.main(["--check"]) == 1
    assert capsys.readouterr().out == "README.md differs from the results: python -m bench.pages\n"
    assert all_pages.main([]) == 0
    readme = (tmp_path / "README.md").read_text()
    assert "| 77 µs | Kafka's LogValidator: " in readme
    assert "`0123abc`" in readme
    assert "Measured: row 1 on Another, 2 cores, " in " ".join(readme.split())
