"""Settings that are accepted, settings that are refused, and the messages."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchval.core.batches.validator import LogValidator
from batchval.kafka_versions import find_release, least_refusing, releases_from
from batchval.policy import TopicPolicy
from batchval.proxy.kit.topics import FirstMatch
from batchval.proxy.produce.policies import TopicLookup
from batchval.proxy.settings.config import Settings, TopicRule
from batchval.proxy.settings.loading import ConfigError, drafted, load, settings_from, shown
from batchval.proxy.settings.setting_types import Address, Secret
from batchval.rules import EXTRAS, Rule

MINIMAL_SETTINGS: dict[str, Any] = {
    "listeners": [{"address": "127.0.0.1:9092"}],
    "upstream": {"bootstrap": "127.0.0.1:9999"},
}
TLS = {"certificate": "a.pem", "key": "a.key"}


def settings(**more: Any) -> Settings:
    return settings_from(MINIMAL_SETTINGS | more)


def problems(text: str, tmp_path: Path) -> list[str]:
    """Return the problems of a file, without its own name."""
    path = tmp_path / "gate.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert all("\n" not in line for line in refused.value.problems)
    return [line.removeprefix(f"{path}") for line in refused.value.problems]


def problem(**more: Any) -> str:
    """Return the only problem of these settings."""
    with pytest.raises(ConfigError) as refused:
        settings(**more)
    (line,) = refused.value.problems
    return line


# ---- defaults ------------------------------------------------------------------------------------


def test_defaults() -> None:
    options = settings()
    assert options.mode == "observe"
    assert str(options.claims_in) == "ignore"
    assert options.claims_out == "none"
    assert (options.bridge, options.bridge_isolation_level) == ((), "read_uncommitted")
    assert options.limits.max_frame_bytes == 104_857_600
    assert (options.limits.handshake_timeout_ms, options.limits.idle_timeout_ms) == (
        10_000,
        600_000,
    )
    assert options.metrics.address is not None
    assert options.metrics.address.is_loopback
    assert not options.reads_topic_configs


def test_extras_are_reported_by_default() -> None:
    extras = settings(validation={"extras": {"S1": "refuse"}}).validation.arguments["extras"]
    assert extras == {"S1": "refuse"} | {
        rule.id: "report" for rule in EXTRAS if rule not in (Rule.S1, Rule.S8)
    }
    LogValidator(TopicPolicy(), mode="strict", extras=extras)  # which takes them
    assert settings(validation={"rules": "kafka"}).validation.arguments["extras"] == {}


def test_a_release_of_kafka_that_is_newer_is_a_warning() -> None:
    for asked, name in (("4.2", "4.2.2"), ("4.2.1", "4.2.1"), ("3.9", "3.9.2")):
        draft = drafted(MINIMAL_SETTINGS | {"validation": {"kafka_version": asked}})
        assert draft.finished().validation.kafka_version == name
        assert draft.warning_lines() == []
    draft = drafted(MINIMAL_SETTINGS | {"validation": {"kafka_version": "4.6"}})
    assert draft.finished().validation.kafka_version == "4.6.0"
    assert draft.warning_lines() == [
        "validation.kafka_version: Kafka 4.6.0 is newer than this batchval, "
        "which answers as Kafka 4.4.0 does"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LogValidator(**draft.finished().validation.arguments).kafka_version == "4.6.0"


def test_the_release_may_be_that_of_the_brokers() -> None:
    draft = drafted(MINIMAL_SETTINGS | {"validation": {"kafka_version": "auto"}})
    validation = draft.finished().validation
    assert draft.warning_lines() == []
    assert validation.kafka_version == "auto"
    assert validation.release is None
    arguments = validation.arguments
    assert arguments["kafka_version"] == least_refusing(releases_from())
    assert settings().validation.release == find_release("4.4.0")


def test_the_version_of_kafka_chooses_the_defaults_of_topics() -> None:
    assert settings().validation.kafka_version == "4.4.0"
    assert settings(validation={"kafka_version": "3.9"}).validation.kafka_version == "3.9.2"
    rule = TopicRule.model_validate({"match": "*", "max.message.bytes": 5})
    found = {v: rule.policy(v).message_timestamp_after_max_ms for v in ("3.9", "4.1", "4.4")}
    assert found == {"3.9": 2**63 - 1, "4.1": 3_600_000, "4.4": 3_600_000}
    for version, after_max in found.items():
        policy = TopicLookup([rule], kafka_version=version)("orders")
        assert policy is not None
        assert (policy.message_timestamp_after_max_ms, policy.max_message_bytes) == (after_max, 5)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("none", ()),
        ([], ()),
        ("consumers", ("consumers",)),
        (["consumers", "producers", "consumers"], ("producers", "consumers")),
    ],
)
def test_the_old_clients_that_are_served(options: Any, found: tuple[str, ...]) -> None:
    assert settings(bridge=options).bridge == found


@pytest.mark.parametrize("options", ["brokers", ["producers", "none"], [1], 7, None])
def test_other_words_for_old_clients_are_errors(options: Any) -> None:
    assert "bridge: must be none, producers, consumers or a list of the last two" in problem(
        bridge=options
    )


def test_the_isolation_level_of_old_consumers_needs_them() -> None:
    assert settings(
        bridge="consumers", bridge_isolation_level="read_committed"
    ).bridge_isolation_level
    line = problem(bridge="producers", bridge_isolation_level="read_committed")
    assert line.endswith("bridge_isolation_level: has no effect: bridge has no consumers")


# ---- errors --------------------------------------------------------------------------------------

BAD_FILES = [
    ("", ":: listeners: is missing|:: upstream: is missing"),
    ("- 1\n", ": must be keys and values"),
    ("mode: [\n", ":2: is not YAML: "),
    (
        "mode: enforce\nmode: observe\n",
        ":: listeners: is missing|:: upstream: is missing|:2: mode: stands twice",
    ),
    ("mode: &a [*a]\n", ":1: mode[0]: holds itself"),
    ("mode: !!python/object:os.system x\n", ":1: is not YAML: "),
]


@pytest.mark.parametrize(("text", "lines"), BAD_FILES)
def test_a_file_that_is_none(text: str, lines: str, tmp_path: Path) -> None:
    found = problems(text, tmp_path)
    for line, wanted in zip(found, lines.split("|"), strict=True):
        assert line.startswith(wanted.replace("::", ":"))


def test_each_error_has_its_line_and_its_key(tmp_path: Path) -> None:
    text = """\
listeners:
  - address: 0.0.0.0:9092
    port: 1
  - address: "9093"
    name: second
upstream:
  bootstrap: broker:9092
  admin: {username: gate, password: 12345}
topics:
  policies:
    - match: "a*"
      max.message.bytes: "12"
    - match: b
      cleanup.policy: compaction
limits: {max_frame_bytes: 1, idle_timeout_ms: ten}
mode: both
claims_in: audit:2
"""
    cleanup = "must be delete, compact or both, not 'compaction'"
    assert sorted(problems(text, tmp_path)) == sorted(
        [
            ":3: listeners[0].port: unknown key (nearest known key: broker_ports)",
            ":4: listeners[1].address: must be HOST:PORT",
            ":8: upstream.admin.password: must be text, {file: PATH} or {env: NAME}",
            ":12: topics.policies[0].max.message.bytes: must be a whole number",
            f":14: topics.policies[1].cleanup.policy: {cleanup}",
            ":15: limits.idle_timeout_ms: must be a whole number",
            ":15: limits.max_frame_bytes: must be at least 1024, not 1",
            ":16: mode: must be enforce or observe",
            ":17: claims_in: audit needs a rate above 0 and at most 1, not 2.0: for 0 use trust",
        ]
    )


def test_fifty_lines_are_enough(tmp_path: Path) -> None:
    found = problems("".join(f"k{n}: 1\n" for n in range(60)), tmp_path)
    assert len(found) == 50
    assert found[-1] == ": and 13 more"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(tmp_path / "bytes.yaml")
    (tmp_path / "long.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="longer than"):
        load(tmp_path / "long.yaml")


# ---- rules between settings ----------------------------------------------------------------------


@pytest.mark.parametrize("word", ["audit:0.001", "trust"])
def test_a_tag_goes_out_only_for_what_was_checked_here(word: str) -> None:
    trusted = [{"address": "127.0.0.1:9092", "trusted": True}]
    assert "only claims that were computed here go on" in problem(
        claims_in=word, claims_out="tag", listeners=trusted
    )
    for checked in ("ignore", "verify"):
        assert settings(claims_in=checked, claims_out="tag").claims_out == "tag"


@pytest.mark.parametrize("word", ["audit:0.001", "trust"])
def test_believed_claims_need_a_sender(word: str) -> None:
    assert "needs a sender" in problem(claims_in=word)
    assert "needs a sender" in problem(
        claims_in=word, listeners=[{"address": "127.0.0.1:1", "tls": TLS}]
    )
    certified = {"address": "127.0.0.1:1", "tls": TLS | {"client_ca": "ca.pem"}}
    for listener in (certified, {"address": "127.0.0.1:1", "trusted": True}):
        assert str(settings(claims_in=word, listeners=[listener]).claims_in) == word


def test_claims_without_a_sender_are_not_read() -> None:
    listeners: list[dict[str, Any]] = [
        {"address": "a:1000", "name": "plain"},
        {"address": "a:2000", "name": "edge", "trusted": True},
        {
            "address": "a:3000",
            "name": "asked",
            "tls": TLS | {"client_ca": "ca.pem", "client_auth": "optional"},
        },
        {"address": "a:4000", "name": "certified", "tls": TLS | {"client_ca": "ca.pem"}},
    ]
    for word, plain in (
        ("trust", "ignore"),
        ("audit:0.5", "ignore"),
        ("verify", "verify"),
        ("ignore", "ignore"),
    ):
        listeners[1]["trusted"] = word in ("trust", "audit:0.5")
        options = settings(claims_in=word, listeners=listeners)
        assert [str(options.claims_in_of(listener)) for listener in options.listeners] == [
            plain,
            word,
            plain,
            word,
        ]


def test_what_clients_encrypt_is_not_sent_on_in_the_open_unasked() -> None:
    far = {"bootstrap": "broker.example.com:9092"}
    secure = [{"address": "127.0.0.1:9092", "tls": TLS}]
    assert "has TLS and the connection to broker.example.com:9092 has none" in problem(
        listeners=secure, upstream=far
    )
    several = {"bootstrap": "127.0.0.1:1,broker.example.com:9092"}
    assert "the connection to broker.example.com:9092 has none" in problem(
        listeners=secure, upstream=several
    )
    assert settings(listeners=secure, upstream=far | {"allow_plaintext": True})
    assert settings(listeners=secure, upstream=far | {"tls": {}})
    assert settings(listeners=secure)  # the broker is on this machine
    plain = {"mechanism": "PLAIN", "username": "gate", "password": "a"}
    assert "PLAIN sends the password" in problem(upstream=far | {"admin": plain})
    assert settings(upstream=far | {"admin": plain | {"mechanism": "SCRAM-SHA-256"}})


TOGETHER = [
    ({"listeners": []}, "at least 1"),
    ({"listeners": [{"address": "a:1"}, {"address": "a:200"}]}, "the same name"),
    (
        {"listeners": [{"address": "a:1"}, {"address": ":1", "name": "b"}]},
        "is taken by listener default",
    ),
    ({"listeners": [{"address": "127.0.0.1:9464"}]}, "is taken by metrics"),
    (
        {"listeners": [{"address": "a:1", "first_broker_port": 65536}]},
        "must be at most 65535, not 65536",
    ),
    (
        {"listeners": [{"address": "a:1", "tls": TLS | {"client_auth": "required"}}]},
        "needs client_ca",
    ),
    (
        {"listeners": [{"address": "a:1", "tls": TLS | {"client_auth": "none", "client_ca": "c"}}]},
        "has no effect",
    ),
    (
        {"listeners": [{"address": "a:1", "tls": TLS | {"minimum_version": "1.1"}}]},
        "must be 1.2 or 1.3",
    ),
    ({"upstream": {"bootstrap": "a:0"}}, "HOST:PORT of a broker"),
    ({"upstream": {"bootstrap": "a:1", "tls": {"key": "k"}}}, "needs certificate"),
    (
        {"upstream": {"bootstrap": "a:1", "tls": {"verify": False}}},
        "upstream.tls.verify: unknown key",
    ),
    ({"listners": []}, "listners: unknown key (nearest known key: listeners)"),
    ({"limits": {"max-conections": 1}}, "(nearest known key: max_connections)"),
    (
        {"topics": {"policies": [{"match": "*", "max_mesage_bytes": 1}]}},
        "(nearest known key: max.message.bytes)",
    ),
    (
        {"listeners": [{"address": "a:1", "tls": TLS | {"clientCa": "c"}}]},
        "(nearest known key: client_ca)",
    ),
    ({"listeners" * 10_000: []}, "(nearest known key: listeners)"),
    ({"upstream": {"bootstrap": "a:1", "admin": {}}}, "needs username and password"),
    (
        {"upstream": {"bootstrap": "a:1", "admin": {"mechanism": "NONE", "username": "u"}}},
        "has no effect with mechanism NONE",
    ),
    ({"topics": {"from_cluster": True}}, "needs upstream.admin"),
    ({"validation": {"extras": {"S8": "report"}}}, "S8 is always refused"),
    (
        {"validation": {"extras": {"S99": "report"}}},
        "validation.extras.S99: is not an extra: they are S1",
    ),
    (
        {"validation": {"rules": "kafka", "extras": {"S1": "refuse"}}},
        "extras belong to the rules strict",
    ),
    (
        {"validation": {"kafka_version": "2.7"}},
        "validation.kafka_version: must be auto, or a release from 2.8.0 to 4.4.0",
    ),
    ({"validation": {"kafka_version": 3.9}}, 'validation.kafka_version: must be in quotes: "3.9"'),
    ({"limits": {"max_bytes_held": 1 << 20}}, "could never pass"),
    ({"limits": {"max_connections": None}}, "must be a whole number"),
    ({"limits": {"threads": True}}, "must be a whole number"),
    ({"metrics": {"address": "0.0.0.0:9464"}}, "remote: true"),
    ({"log": {"format": "xml"}}, "must be text or json"),
]


@pytest.mark.parametrize(("options", "words"), TOGETHER)
def test_what_does_not_go_together(options: dict[str, Any], words: str) -> None:
    assert words in problem(**options)


def test_metrics_may_be_remote_when_asked_or_off() -> None:
    assert settings(metrics={"address": "0.0.0.0:9464", "remote": True}).metrics.remote
    assert settings(metrics={"address": None}).metrics.address is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a:1", "a", 1),
        ("[::1]:9092", "::1", 9092),
        (":0", "", 0),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == (host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "9092", "a:", "a:65536", "::1:9092", "a:-1", "a b:1", "a:١", "http://a:1"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets|out of range"):
        Address.parse(text)


def test_topic_rules_are_topic_configurations() -> None:
    rules = [
        {"match": "orders.*", "max.message.bytes": 2_000_000, "cleanup.policy": "compact"},
        {"match": "Or[dt]ers", "message.timestamp.after.max.ms": 5},
    ]
    first, second = settings(topics={"policies": rules}).topics.policies
    assert first.policy() == TopicPolicy(max_message_bytes=2_000_000, cleanup_policy="compact")
    assert second.policy() == TopicPolicy(message_timestamp_after_max_ms=5)
    by_glob = FirstMatch([(first.match, 1), (second.match, 2)], 0, 10)
    names = ("orders.eu", "Orders.eu", "Orders", "Orters")
    assert [by_glob[name] for name in names] == [1, 0, 2, 2]


# ---- the command line over the file --------------------------------------------------------------


def test_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        "listeners: [{address: ':1'}]\nupstream: {bootstrap: 'a:1'}\nmode: observe\nlog:\n"
    )
    options = load(path, {"mode": "enforce", "log.format": "json", "upstream.bootstrap": "b:2"})
    assert (options.mode, options.log.format, options.upstream.bootstrap) == (
        "enforce",
        "json",
        (("b", 2),),
    )
    path.write_text("log: loud\n")
    with pytest.raises(ConfigError) as refused:
        load(path, {"log.format": "json"})
    assert any("log: must be keys and values" in line for line in refused.value.problems)


# ---- secrets -------------------------------------------------------------------------------------

PLANTED = "pl4nted-s3cret"


def test_a_secret_comes_from_the_file_another_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"{PLANTED}\n")
    monkeypatch.setenv("GATE_PASSWORD", PLANTED)
    for source in (f"'{PLANTED}'", "{file: password}", "{env: GATE_PASSWORD}"):
        path = tmp_path / "gate.yaml"
        path.write_text(
            f"listeners: [{{address: ':1'}}]\n"
            f"upstream: {{bootstrap: 'a:1', admin: {{username: u, password: {source}}}}}\n"
        )
        options = load(path)
        assert options.upstream.admin is not None
        assert options.upstream.admin.password is not None
        assert options.upstream.admin.password.reveal() == PLANTED
        for text in (
            shown(options),
            repr(options),
            str(options),
            options.model_dump_json(fallback=repr),
        ):
            assert PLANTED not in text
        assert yaml.safe_load(shown(options))["upstream"]["admin"]["username"] == "u"
    assert str(tmp_path / "password") in shown(
        load(path, {"upstream.admin.password": {"file": "password"}})
    )


@pytest.mark.parametrize(
    "text",
    [
        "upstream: {admin: {password: {word: P}}}",
        "upstream: {admin: {password: [P]}}",
        "upstream: {admin: {pasword: P}}",
        "upstream: {admin: P}",
        "upstream: P",
        "upstream: {file: {P: 1}}",
        'upstream: "P\n',
        "upstream: P: P",
        "upstream: !P P",
        "mode: P",
        "claims_in: [P]",
    ],
)
def test_no_error_shows_what_may_be_a_secret(text: str, tmp_path: Path) -> None:
    for line in problems(
        text.replace("!P", "!t").replace("{P: 1}", "[P]").replace("P", PLANTED), tmp_path
    ):
        assert PLANTED not in line


def test_secrets_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATE_NOTHING", raising=False)
    with pytest.raises(ValueError, match="the environment has no GATE_NOTHING"):
        Secret(env="GATE_NOTHING").reveal()
    with pytest.raises(ValueError, match="No such file"):
        Secret(file=tmp_path / "none").reveal()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        Secret(file=tmp_path / "empty").reveal()
