"""The pages say what is true: examples are run, commands print what is shown, links lead
somewhere.
"""

from __future__ import annotations

import doctest
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import readme_renderer.markdown

from batchval.rule_texts import RULE_TEXTS
from batchval.rules import Rule
from bench.pages import __main__ as all_pages
from bench.pages.proxy import Samples, ratios
from tests.support.shell import Shell
from tests.support.sources import ROOT
from tools import generate_rules, generated_files

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text("utf-8")
#: pages whose examples run one after the other, in one folder and with the same names
SESSIONS = (
    ("reference/library", ("README", "validator", "many", "records", "claims", "topic-policy")),
    ("guide", ("audit", "audit-claims", "incident", "audit-runs")),
    ("reference/cli", ("README", "check", "dump", "proxy")),
)
#: texts for maintainers
TOP = sorted(set(ROOT.glob("*.md")) - set(PAGES))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: a file that a page shows whole: the reader saves it before the commands
_FILE = re.compile(r"^```\w+ title=\"([\w.-]+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
#: the repository on the web, as a file and as a picture
WEB = (
    "https://github.com/batchval/batchval/blob/main/",
    "https://raw.githubusercontent.com/batchval/batchval/main/",
)


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(page.read_text("utf-8")) if name == language]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name(page: object) -> str:
    """Return the name of a page, or of the first page of a session."""
    if isinstance(page, tuple):
        return name(page[0])
    return str(page.relative_to(ROOT)) if isinstance(page, Path) else str(page)


def linked(page: Path) -> Iterator[Path]:
    """Yield the files of this repository that a page links to, by relative or absolute links."""
    for target in _LINK.findall(page.read_text("utf-8")):
        own = next((web for web in WEB if target.startswith(web)), None)
        if own:
            yield ROOT / target.removeprefix(own)
        elif not target.startswith(("http://", "https://")):
            yield (page.parent / target).resolve()


def sessions(language: str) -> list[tuple[Path, ...]]:
    """Return the pages with examples of a language, grouped by session."""
    found = {page: (page,) for page in pages_with(language)}
    for folder, names in SESSIONS:
        pages = tuple(
            page for name in names if (page := ROOT / "docs" / folder / f"{name}.md") in found
        )
        if pages:
            found[pages[0]] = pages
            for page in pages[1:]:
                del found[page]
    return list(found.values())


@pytest.mark.parametrize("pages", sessions("python"), ids=name)
def test_python(
    pages: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    text = "\n".join(block for page in pages for block in blocks(page, "python"))
    example = doctest.DocTestParser().get_doctest(text, {}, pages[0].name, str(pages[0]), 0)
    assert len(example.examples) > 3
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert result.failed == 0, capsys.readouterr().out


def commands(page: Path) -> list[tuple[str, str]]:
    """Return (command, its output); a line ``exit code N`` where it is not 0, and … for any
    text.
    """
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command, shown))
    return found


#: pages that run audits, which take long; and Spark with three data tools, a minute and more
MARKS = {"audit.md": pytest.mark.long, "cookbook-data.md": pytest.mark.slow}
CONSOLE = [pytest.param(pages, marks=MARKS.get(pages[0].name, ())) for pages in sessions("console")]


@pytest.mark.parametrize("pages", CONSOLE, ids=name)
def test_console(pages: tuple[Path, ...], tmp_path: Path) -> None:
    """Run all commands of a session in one shell, in a folder that holds only the fixtures and the
    files that the pages show.
    """
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    for settings in (block for page in pages for block in blocks(page, "yaml")):
        (tmp_path / "gate.yaml").write_text(settings)
    with Shell(tmp_path) as shell:
        for page in pages:
            for file, text in _FILE.findall(page.read_text("utf-8")):
                (tmp_path / file).write_text(shell.own_ports(text))
        for command, shown in (one for page in pages for one in commands(page)):
            printed = shell.run(command)
            pattern = ".*?".join(re.escape(piece) for piece in shown.split("…"))
            assert re.fullmatch(pattern, printed, re.DOTALL), (
                f"$ {command}\n{printed}\n--- the page shows:\n{shown}"
            )


def test_what_is_written_from_the_rules_is_up_to_date() -> None:
    found = generated_files.stale(generate_rules.generated())
    stale = [str(path.relative_to(ROOT)) for path in found]
    assert stale == [], f"run {generate_rules.COMMAND}, then make build"


def test_every_rule_is_explained() -> None:
    """Find class and method for Kafka's own rules, and for those of files that it reads at
    startup.
    """
    assert {name for name, text in RULE_TEXTS.items() if text.kafka} == {
        *(rule.id for rule in Rule if rule.id[0] not in "SLR"),
        *("L10", "L11", "L12", "L13", "L14"),
    }
    for name, text in RULE_TEXTS.items():
        for words in (text.why, text.advice):
            assert words == " ".join(words.split()), name
            assert words.endswith("."), name
            assert len(words) > 30, name


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=name)
def test_links_lead_to_files(page: Path) -> None:
    for target in linked(page):
        assert target.exists(), target


def test_every_page_is_in_an_index_that_the_readme_links_to() -> None:
    indexes = [page for page in linked(ROOT / "README.md") if page.name == "README.md"]
    assert set(PAGES) - {ROOT / "README.md"} <= {
        target for page in indexes for target in (page, *linked(page))
    }


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["project"]["dependencies"], *(one for extra in extras for one in extra)]
    wanted += project["build-system"]["requires"]
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    for requirement in wanted:
        package = re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0]
        assert f"| `{package}` |" in page, package


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    named = set()
    for page in (ROOT / "README.md", *TOP):
        named |= set(
            re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page.read_text("utf-8"), re.MULTILINE)
        )
    assert named <= targets
    assert {"demo", "test"} <= named


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_links_and_pictures_are_absolute() -> None:
    """Follow what the README links to where a package index renders it."""
    rendered = readme_renderer.markdown.render(README)
    assert rendered is not None
    assert rendered.count("<table>") == README.count("|---|") + README.count("| --- |\n")
    links = re.findall(r'<a [^>]*href="([^#"][^"]*)"', rendered)
    pictures = re.findall(r'<img [^>]*src="([^"]*)"', rendered)
    file, picture = WEB
    assert len(links) > 10
    assert len(pictures) == len(re.findall(r'<img [^>]*alt="[^"]', rendered)) == 2
    assert all(target.startswith("https://") for target in links)
    assert all(target.startswith(picture) and target.endswith(".svg") for target in pictures)
    assert not [target for target in links if target.startswith(picture)]
    for target in links:
        if target.startswith(file):
            assert (ROOT / target.removeprefix(file)).is_file(), target


def test_pages_chart_and_figures_are_those_of_the_results() -> None:
    texts = all_pages.documents() | all_pages.readme()
    assert all_pages.different(texts) == [], "make bench-pages writes them"


def test_figures_of_the_gate_are_of_its_data_path_and_not_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all_pages.outdated() == []
    command = ["git", "rev-list", "--max-parents=0", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first = done.stdout.split()[0]
    old = {"date": "2026-01-01", "machine": {"commit": first}}
    monkeypatch.setattr(all_pages.place, "read", lambda _: old)
    *changed, age = all_pages.outdated()
    assert [line.split()[1] for line in changed] == list(all_pages.proxy.DATA_PATH)
    assert "days before the newest commit: at most 31" in age


def test_ratios_are_of_the_same_round_and_have_an_interval() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{"cpu_s_a_gb": value} for value in values]

    found = Samples(
        {
            "64 kB none": {"validating": rounds(1, 2, 3), "pump": rounds(1, 1, 1)},
            "64 kB lz4": {
                "validating": rounds(4, 6, 8),
                "library": rounds(1, 2, 2),
                "pump": rounds(1, 1, 2),
            },
            "1 kB none": {"validating": rounds(1), "pump": rounds(1)},  # one round says nothing
        }
    )
    rows = [line for line in "\n".join(ratios(found)).splitlines() if "relay" in line]
    assert rows == [
        "| CPU at 64 kB | relay in C, passes bytes | 2.00 | 1.00 to 3.00 |",
        "| CPU at 64 kB, lz4 | library and relay in C | 2.00 | 2.00 to 2.00 |",
    ]
    assert ratios(Samples({})) == []
