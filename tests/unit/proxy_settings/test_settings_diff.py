"""The differences between two settings: their log line, and which of them need a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batchval.proxy.life.reload import changes, effect_of, restart_faults
from batchval.proxy.settings.config import Effect, Settings
from batchval.proxy.settings.loading import keys_of, settings_from
from batchval.yaml_settings.faults import path_of
from batchval.yaml_settings.wording import model_at

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "proxy" / "settings.md").read_text(
    "utf-8"
)
EDGE = {"name": "edge", "address": "127.0.0.1:9092"}
INNER = {"name": "inner", "address": "127.0.0.1:19092"}


def made(**values: Any) -> Settings:
    return settings_from(
        {"listeners": [EDGE, INNER], "upstream": {"bootstrap": "127.0.0.1:1"}} | values
    )


def declared(model: type[BaseModel] = Settings, path: str = "") -> Iterator[tuple[str, Effect]]:
    """Yield the keys that declare an effect, with it."""
    for name, key in keys_of(model).items():
        for effect in model.model_fields[name].metadata:
            if isinstance(effect, Effect):
                yield f"{path}{key}", effect
        if (inner := model_at(model, [name])) is not model:
            yield from declared(inner, f"{path}{key}.")


def test_each_key_has_an_effect() -> None:
    # A key that is new has to say when a change of it is felt.
    named = {key.partition(".")[0] for key, _ in declared()}
    assert named == set(keys_of(Settings).values())


def test_the_page_has_each_key_under_its_effect() -> None:
    section = PAGE.partition("## When a change takes effect")[2].partition("\n## ")[0]
    rows = dict(
        re.findall(r"^\| (at once|new connections|restart) \| (.*?) \|$", section, re.MULTILINE)
    )
    found = {
        key: effect
        for effect, keys in rows.items()
        for key in re.findall(r"`([a-z_.\[\]]+)`", keys)
    }
    assert found == {key: effect.value for key, effect in declared()}


RESTART: dict[str, dict[str, Any]] = {
    "listeners[0].address": {"listeners": [EDGE | {"address": "127.0.0.1:9999"}, INNER]},
    "listeners[1].first_broker_port": {"listeners": [EDGE, INNER | {"first_broker_port": 20_000}]},
    "listeners[1].broker_ports": {"listeners": [EDGE, INNER | {"broker_ports": 7}]},
    "listeners": {"listeners": [EDGE]},
    "listeners[2]": {"listeners": [EDGE, INNER, {"name": "new", "address": "127.0.0.1:29092"}]},
    "metrics.address": {"metrics": {"address": "127.0.0.1:9999"}},
    "state_directory": {"state_directory": "elsewhere"},
}


@pytest.mark.parametrize("key", RESTART)
def test_what_needs_a_restart_is_named_with_both_values(key: str) -> None:
    (fault,) = restart_faults(made(), made(**RESTART[key]))
    assert path_of(fault.loc) == key
    assert "needs a restart (or a hand-over: --take-over)" in fault.text
    assert list(restart_faults(made(**RESTART[key]), made(**RESTART[key]))) == []
    if key == "metrics.address":
        assert fault.text.startswith(
            "is 127.0.0.1:9464 in the running gate, and 127.0.0.1:9999 here: "
        )


def test_another_name_ends_one_listener_and_begins_another() -> None:
    renamed = made(listeners=[EDGE, INNER | {"name": "other"}])
    assert [path_of(fault.loc) for fault in restart_faults(made(), renamed)] == [
        "listeners",
        "listeners[1]",
    ]


CHANGES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({}, {"mode": "enforce"}, ["mode observe -> enforce"]),
    ({"mode": "enforce"}, {}, ["mode enforce -> observe"]),
    ({}, {"limits": {"max_connections": 20_000}}, ["limits.max_connections 10000 -> 20000"]),
    ({}, {"listeners": [INNER, EDGE]}, []),
    ({}, {"claims_in": "verify"}, ["claims_in ignore -> verify"]),
    ({}, {"reload": {"watch": False}}, ["reload.watch true -> false"]),
    ({}, {"topics": {"policies": [{"match": "a"}]}}, ["topics.policies changed"]),
    ({}, {"validation": {"extras": {"S1": "refuse"}}}, ["validation.extras changed"]),
    (
        {},
        {"listeners": [INNER, EDGE | {"advertised_host": "kafka.example", "max_connections": 5}]},
        [
            "listeners[edge].advertised_host null -> kafka.example",
            "listeners[edge].max_connections null -> 5",
        ],
    ),
]


@pytest.mark.parametrize(("before", "after", "lines"), CHANGES)
def test_a_line_names_each_key_with_both_values(
    before: dict[str, Any], after: dict[str, Any], lines: list[str]
) -> None:
    assert sorted(changes(made(**before), made(**after))) == sorted(lines)


def test_no_secret_is_shown() -> None:
    def with_password(password: Any) -> Settings:
        admin = {"username": "gate", "password": password}
        return made(upstream={"bootstrap": "127.0.0.1:1", "admin": admin})

    secrets = ["planted-1", "planted-2", {"env": "GATE_PASSWORD"}, {"file": "password"}]
    for one in secrets:
        assert changes(with_password(one), with_password(one)) == []
        for other in secrets:
            if one != other:
                assert changes(with_password(one), with_password(other)) == [
                    "upstream.admin.password changed"
                ]
    assert "planted" not in str(changes(made(), with_password("planted-1")))


def test_the_nearest_key_around_a_key_decides() -> None:
    assert effect_of(("listeners", 3, "tls", "certificate")) is Effect.NEW
    assert effect_of(("listeners", 3, "something_new")) is Effect.RESTART
    assert effect_of(("something_new",)) is Effect.RESTART
    assert effect_of(("limits", "something_new")) is Effect.AT_ONCE
    assert effect_of(("limits", "stop_delay_ms")) is Effect.AT_ONCE
