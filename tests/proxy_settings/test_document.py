"""docs/reference/proxy/settings.md: its example has every key and is accepted; its defaults are
those of the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from batchval.proxy.config import Settings
from batchval.proxy.loading import load, overridden, shown
from batchval.proxy.metrics import GateMetrics
from batchval.proxy.options import Counters

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "proxy" / "settings.md").read_text(
    "utf-8"
)
METRICS = (Path(__file__).parents[2] / "docs" / "reference" / "proxy" / "metrics.md").read_text(
    "utf-8"
)
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
    # mode observe goes without observe, allow_plaintext without tls, kafka without extras,
    # and tag without audit
    assert same == ["mode", "upstream|allow_plaintext", "validation|rules", "claims_out"]


def test_the_metrics_that_it_names_exist() -> None:
    counters = Counters()
    for name in GateMetrics(counters, mode="enforce", version="1").page()().decode().splitlines():
        assert not name.startswith("batchval_gate__")
    from batchval.proxy.assemble import RunningGate
    from batchval.proxy.loading import settings_from
    from batchval.proxy.reloading import Reloader

    admin = {"mechanism": "NONE"}
    options = {
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:2", "admin": admin},
    }
    record_rules = {"schema_id": {"registry": "default"}}
    options |= {
        "topics": {
            "policies": [
                {"match": "*", "record_rules": record_rules, "custom_rules": ["builtins:len"]}
            ]
        }
    }
    options |= {
        "schema_registries": [{"url": "http://127.0.0.1:1"}],
        "log": {"audit_file": "/dev/null"},
    }
    options |= {"quarantine": "quarantine", "metrics": {"otlp": {"endpoint": "http://127.0.0.1:1"}}}
    gate = RunningGate(settings_from(options))
    gate.metrics.add(Reloader(gate, None, {}).families)
    text = gate.metrics.page()().decode()
    table = METRICS.split("## Metrics and health")[1].split("## The log")[0]
    named = re.findall(
        r"`([a-z_]+)(?:\{[a-z,]+\})?`", "\n".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    )
    assert len(named) > 20
    for name in named:
        assert f"# TYPE batchval_gate_{name} " in text, name


def test_each_counter_has_its_words() -> None:
    from dataclasses import fields

    from batchval.proxy.metrics import _HELP

    assert {field.name for field in fields(Counters)} == set(_HELP)
