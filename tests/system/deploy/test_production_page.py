"""The pages of the gate in production name what a gate has: keys, flags, metrics, panels, reasons,
fields of the log.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
import yaml

from batchval.cli.proxy import command
from batchval.proxy.kit.end_reasons import REASONS
from batchval.proxy.session import connection_log
from batchval.proxy.settings.config import Limits, Settings
from batchval.proxy.settings.loading import load
from batchval.proxy.settings.options import Refusal
from batchval.proxy.watch.audit_log import facts_of
from batchval.rules import Rule
from tests.system.deploy.conftest import DEPLOY, ROOT
from tests.system.deploy.gate_metrics import PREFIX, unknown
from tests.unit.proxy_settings.test_document import keys

NAMES = ("gate-production", "gate-questions", "gate-alerts")
PAGES = {name: (ROOT / "docs" / "guide" / f"{name}.md").read_text("utf-8") for name in NAMES}
PAGE = "\n".join(PAGES.values())
FLAT = " ".join(PAGE.split())
KEYS = set(keys(Settings))
#: (number, text) of each question
_ASKED = r"^\*\*(\d+)\. (.*?)(?=^\*\*\d+\. |^## |\Z)"
QUESTIONS = re.findall(_ASKED, PAGES["gate-questions"], re.DOTALL | re.MULTILINE)
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))


def shown_lines(event: str) -> list[dict[str, str]]:
    """Return the fields of the page's log lines about an event, wrapped ones as one line."""
    text = "\n".join(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    lines = re.sub(r"\n  +", " ", text).splitlines()
    found = [
        re.findall(r'(\w+)=("[^"]*"|\S+)', line)
        for line in lines
        if re.search(rf"Z [A-Z]+ {event} ", line)
    ]
    return [{key: value.strip('"') for key, value in fields} for fields in found]


def test_there_are_ten_questions_and_each_has_a_command_or_a_panel() -> None:
    assert [int(number) for number, _ in QUESTIONS] == list(range(1, 11))
    for _, text in QUESTIONS:
        assert re.search(r"^\$ |`batchval |Panels? \"", text, re.MULTILINE), text


def test_its_settings_are_taken(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "gate.yaml"
    path.write_text(settings)
    assert load(path).mode == "observe"
    assert set(yaml.safe_load(settings)) <= KEYS


def test_each_key_exists() -> None:
    section = PAGE.split("## Limits")[1].split("\n## ")[0]
    limits = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert len(limits) > 3
    assert limits <= set(Limits.model_fields)
    roots = {key.partition(".")[0] for key in KEYS}
    dotted = {
        word.partition(":")[0]
        for word in QUOTED
        if re.fullmatch(r"([a-z_]+)\.[a-z_.]+(: .*)?", word)
    }
    named = {word for word in dotted if word.partition(".")[0] in roots}
    assert len(named) > 10
    assert named - KEYS == set()


def test_each_word_of_the_gate_exists(metrics: dict[str, frozenset[str]]) -> None:
    """Look up names with an underscore: keys, reasons of ended connections, metrics."""
    words = {word for word in QUOTED if re.fullmatch(r"[a-z]+(_[a-z]+)+", word)}
    leaves = {key.rpartition(".")[2] for key in KEYS}
    assert len(words) > 5
    assert words - leaves - set(REASONS) - {name.removeprefix(PREFIX) for name in metrics} == set()


def test_each_flag_is_one_of_the_command() -> None:
    flags = {
        flag
        for words in re.findall(r"batchval proxy ([^`|]*)", FLAT)
        for flag in re.findall(r"--[a-z-]+", words)
    }
    assert {"--report", "--clients", "--take-over", "--check-config"} <= flags
    assert flags <= {option for parameter in command.params for option in parameter.opts}


def test_each_panel_is_in_the_dashboard() -> None:
    titles = {
        panel["title"]
        for panel in json.loads((DEPLOY / "grafana" / "gate.json").read_text("utf-8"))["panels"]
    }
    sentences = re.findall(r"[Pp]anels? (\"[^\"]*\"(?:(?:, | and )\"[^\"]*\")*)", FLAT)
    named = {title for sentence in sentences for title in re.findall(r'"([^"]*)"', sentence)}
    assert len(named) > 8
    assert named <= titles


def test_each_sample_is_one_that_its_command_finds(metrics: dict[str, frozenset[str]]) -> None:
    curl = r"^\$ curl \S* ?\S+/metrics \|\s+grep "
    asked = re.findall(curl + r"(?:-E )?'([^'\n]*)'\n((?:batchval_.*\n)+)", PAGE, re.MULTILINE)
    assert len(re.findall(curl, PAGE, re.MULTILINE)) == len(asked) > 3
    for pattern, samples in asked:
        for line in samples.splitlines():
            assert re.search(pattern, line), line
            assert unknown(line, metrics) == [], line


def test_lines_about_refused_batches_have_the_fields_of_the_log() -> None:
    refusal = Refusal(
        "edge", "h:1", "id", "topic", 1, "rule", "error", "reason", True, ("S1",), batches=2
    )
    lines = shown_lines("refused")
    assert lines
    for line in lines:
        assert list(line) == [key for key in facts_of(refusal) if key in line]
        assert line["rule"] in {rule.slug for rule in Rule}


def test_lines_about_connections_have_the_fields_and_the_words_of_the_log() -> None:
    fields = list(
        dict.fromkeys(
            re.findall(r'"([a-z_]+)":', inspect.getsource(connection_log.ConnectionLog.ended))
        )
    )
    lines = shown_lines("connection ended")
    assert lines
    known = set(re.findall(r'"([a-z_]+)":', inspect.getsource(connection_log)))
    assert {"reason", "meaning", "detail"} <= set(fields)
    for line in lines:
        assert set(line) <= known
        assert line["meaning"] == REASONS[line["reason"]].meaning


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", PAGE))))
def test_each_link_leads_to_a_heading(link: str) -> None:
    target, _, anchor = link.partition("#")
    text = (ROOT / "docs" / "guide" / target).read_text("utf-8") if target else PAGE
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert anchor in {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
