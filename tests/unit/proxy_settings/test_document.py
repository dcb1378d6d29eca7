"""docs/reference/proxy/settings.md: its example has every key and is accepted; its defaults are
those of the code. So are those of the command line and of the chart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from click import Option
from pydantic import BaseModel

from batchval.cli.proxy import command
from batchval.policy import ClaimsPolicy
from batchval.proxy.settings.config import MAX_WORKERS, Listener, Settings
from batchval.proxy.settings.loading import load, overridden, shown
from batchval.proxy.settings.options import Counters
from batchval.proxy.settings.setting_types import Address
from batchval.yaml_settings.wording import model_at
from tools import site_metrics

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/proxy/settings.md").read_text("utf-8")
METRICS = (ROOT / "docs/reference/proxy/metrics.md").read_text("utf-8")
COMMAND = (ROOT / "docs/reference/cli/proxy.md").read_text("utf-8")
HELPERS = (ROOT / "deploy/helm/batchval-gate/templates/_helpers.tpl").read_text("utf-8")
EXAMPLE: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])


#: Keys of other paths than those below tls/.
PATHS = {"state_directory", "quarantine|directory"}


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)


def keys(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{path}.{field.alias or name}".lstrip(".")
        yield key
        for inner in models(field.annotation):
            yield from keys(inner, key)


def values(options: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a file: lists do not count as a step."""
    if isinstance(options, list):
        for one in options:
            yield from values(one, path)
    elif isinstance(options, dict):
        for key, value in options.items():
            yield f"{path}|{key}".lstrip("|"), value
            yield from values(value, f"{path}|{key}")


def test_the_example_has_every_key_and_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(EXAMPLE))
    settings = load(path)
    assert settings.mode == "enforce"
    in_example = {key.replace("|", ".") for key, _ in values(EXAMPLE)}
    wanted = set(keys(Settings))
    assert len(wanted) > 60
    assert wanted - in_example == set()


def test_what_is_printed_is_what_was_set_and_can_be_set_again(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(EXAMPLE))
    first = shown(load(path))
    printed = list(values(yaml.safe_load(first)))
    for key, value in values(EXAMPLE):
        is_path = str(value).startswith("tls/") or key in PATHS
        options = str(tmp_path / value) if is_path else value
        if not isinstance(value, dict | list):
            assert (key, options) in printed
    path.write_text(first)
    assert shown(load(path)) == first


def test_the_example_differs_from_the_defaults() -> None:
    # Only where another value would not go with the rest of the example does a default stand.
    least = {"listeners": [{"address": "127.0.0.1:1"}], "upstream": {"bootstrap": "127.0.0.1:2"}}
    plain = Settings.model_validate(overridden(least, {}))
    by_default = dict(values(yaml.safe_load(shown(plain))))
    same = [
        key
        for key, value in values(EXAMPLE)
        if not isinstance(value, dict | list) and by_default.get(key) == value
    ]
    # allow_plaintext goes without tls, kafka without extras, and tag without audit
    assert same == ["upstream|allow_plaintext", "validation|rules", "claims_out"]


def defaults(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, default as the page writes it) of the keys that have one of their own."""
    for name, field in model.model_fields.items():
        key = f"{path}|{field.alias or name}".lstrip("|")
        if isinstance(field.default, bool):
            yield key, str(field.default).lower()
        elif isinstance(field.default, int | str | Address | ClaimsPolicy):
            yield key, "all" if field.default == "*" else str(field.default)
        for inner in models(field.annotation):
            yield from defaults(inner, key)


def lines(node: yaml.Node, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield (key, its line) of a file: lists do not count as a step."""
    for inner in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from lines(inner, path)
    for name, inner in node.value if isinstance(node, yaml.MappingNode) else ():
        key = f"{path}|{name.value}".lstrip("|")
        yield key, name.start_mark.line
        yield from lines(inner, key)


def test_the_page_has_every_default() -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    comments = [line.partition(" #")[2] for line in example.split("\n")]
    shown_at: dict[str, str] = {}
    for key, line in lines(yaml.compose(example)):
        shown_at[key] = shown_at.get(key, "") + comments[line]
    wanted = dict(defaults(Settings))
    assert len(wanted) > 50
    for key, default in wanted.items():
        word = re.escape(default)
        pattern = rf'default: "?{word}"?(?![\w.])|(?<!\w){word} \(default\)'
        assert re.search(pattern, shown_at[key]), (key, default, shown_at[key])


def spoken(key: str) -> tuple[str, ...]:
    """Return how a text may state the default of a key, and the bounds of ``workers``."""
    section, _, name = key.rpartition(".")
    field = model_at(Settings, [section] if section else []).model_fields[name]
    if key == "workers":
        return (f"{field.default} (default) to {MAX_WORKERS}",)
    return tuple(
        text.format(field.default) for text in ("{} (default", "efault: {}.", "default {}")
    )


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--mode", "mode"),
        ("--claims-in", "claims_in"),
        ("--claims-out", "claims_out"),
        ("--log-format", "log.format"),
        ("--workers", "workers"),
        ("--metrics", "metrics.address"),
    ],
)
def test_an_option_names_the_default_of_its_key(option: str, key: str) -> None:
    (help_text,) = (
        one.help or "" for one in command.params if isinstance(one, Option) and option in one.opts
    )
    assert any(text in help_text for text in spoken(key))
    (row,) = re.findall(
        rf"^\| `{option} .*$", COMMAND.replace("`, `--", "` |\n| `--"), re.MULTILINE
    )
    if "default" in row:
        assert any(text in row for text in spoken(key))


def test_the_chart_has_the_default_of_broker_ports() -> None:
    (default,) = re.findall(r'default (\d+) \(get \$listener "broker_ports"\)', HELPERS)
    assert int(default) == Listener.model_fields["broker_ports"].default


def test_the_page_names_only_metrics_with_their_labels(tmp_path: Path) -> None:
    known = dict(site_metrics.metrics(str(tmp_path)))
    table = METRICS.split("## Metrics and health")[1].split("## The log")[0]
    cells = "\n".join(re.findall(r"^\| (`[a-z].*?) \|", table, re.MULTILINE))
    named = set(re.findall(r"`([a-z_]+(?:\{[a-z,]+\})?)`", cells))
    assert len(named) > 90
    assert named <= known.keys()


def test_each_metric_has_its_text_on_the_site(tmp_path: Path) -> None:
    known = dict(site_metrics.metrics(str(tmp_path)))
    assert [name for name, text in known.items() if not text.endswith(".")] == []
    rows = site_metrics.markdown().split("| --- | --- |\n")[1].splitlines()
    assert sorted(rows) == sorted(f"| `{name}` | {text} |" for name, text in known.items())


def test_each_counter_has_its_text_and_each_dict_its_label() -> None:
    for counter in fields(Counters):
        assert "text" in counter.metadata, counter.name
        assert ("label" in counter.metadata) == (counter.default_factory is dict), counter.name
