"""Settings that are refused: each alone, and all of them in one file at once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from batchval.proxy.kit import sockets
from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.settings.loading import ConfigError, Draft, drafted, drafted_file, settings_from

PLANTED = "pl4nted-s3cret"
LISTENER: dict[str, Any] = {"address": "127.0.0.1:9092"}
TLS = {"certificate": "a.pem", "key": "a.key"}
UPSTREAM: dict[str, Any] = {"bootstrap": "kafka.invalid:9999"}
MINIMAL_SETTINGS: dict[str, Any] = {"listeners": [LISTENER], "upstream": UPSTREAM}


def lines(draft: Draft) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        draft.finished()
    return refused.value.problems


def problem(**more: Any) -> str:
    """Return the only fault of these settings."""
    (line,) = lines(drafted(MINIMAL_SETTINGS | more))
    return line


def listener(**more: Any) -> dict[str, Any]:
    return {"listeners": [LISTENER | more]}


def upstream(**more: Any) -> dict[str, Any]:
    return {"upstream": UPSTREAM | more}


def test_the_least_settings_are_sound() -> None:
    assert settings_from(MINIMAL_SETTINGS).upstream.bootstrap == (("kafka.invalid", 9999),)


# ---- new keys ------------------------------------------------------------------------------------


def test_several_brokers() -> None:
    for values in ("a:1,b:2", "a:1, b:2", ["a:1", "b:2"]):
        assert settings_from(MINIMAL_SETTINGS | upstream(bootstrap=values)).upstream.bootstrap == (
            ("a", 1),
            ("b", 2),
        )
    assert "bootstrap: address 2 of 3: must be HOST:PORT" in problem(
        **upstream(bootstrap="a:1,b,c:3")
    )
    assert "bootstrap[1]: must be HOST:PORT of a broker" in problem(
        **upstream(bootstrap=["a:1", "b:0"])
    )
    assert "bootstrap: must be HOST:PORT" in problem(**upstream(bootstrap=7))
    assert "bootstrap: tuple should have at least 1" in problem(**upstream(bootstrap=[]))
    assert "must be HOST:PORT of a broker" in problem(**upstream(bootstrap="0.0.0.0:9"))


def test_the_state_directory_comes_from_systemd_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert settings_from(MINIMAL_SETTINGS).state_folder is None
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/gate:/var/lib/other")
    assert settings_from(MINIMAL_SETTINGS).state_folder == Path("/var/lib/gate")
    assert settings_from(MINIMAL_SETTINGS | {"state_directory": "/srv"}).state_folder == Path(
        "/srv"
    )


# ---- ports ---------------------------------------------------------------------------------------

PORTS = [
    (
        {"listeners": [LISTENER, {"address": "127.0.0.1:9094", "name": "b"}]},
        "port 9094 of listener b is among the",
    ),
    (
        {"listeners": [LISTENER, {"address": "localhost:9094", "name": "b"}]},
        "port 9094 of listener b is among the",
    ),
    (
        {"listeners": [LISTENER, {"address": "[::]:9094", "name": "b"}]},
        "port 9094 of listener b is among the",
    ),
    (
        listener(first_broker_port=9000),
        "ports 9000 to 9099 of the brokers of listener default include the port 9092",
    ),
    (listener(address="127.0.0.1:9400"), "include the port 9464 of metrics"),
    (
        listener(address="127.0.0.1:65500"),
        "ports 65501 to 65600 of the brokers of listener default end above 65535",
    ),
    (
        {
            "listeners": [
                {"address": "127.0.0.1:0", "first_broker_port": 9500},
                {"address": "127.0.0.1:0", "first_broker_port": 9550, "name": "b"},
            ]
        },
        "ports 9550 to 9649 of the brokers of listener b overlap the ports 9500 to 9599",
    ),
]


@pytest.mark.parametrize(("values", "words"), PORTS)
def test_ports_that_collide(values: dict[str, Any], words: str) -> None:
    assert words in problem(**values)


APART: list[dict[str, Any]] = [
    {"listeners": [LISTENER, {"address": "127.0.0.1:9193", "name": "b"}]},
    {"listeners": [LISTENER, {"address": "127.0.0.2:9094", "name": "b"}]},
    {"listeners": [LISTENER, {"address": "[::1]:9094", "name": "b"}]},
    {"listeners": [{"address": "0.0.0.0:9092"}, {"address": "[::1]:9092", "name": "b"}]},
    {
        "listeners": [
            LISTENER | {"broker_ports": 1},
            {"address": "127.0.0.1:9094", "name": "b", "broker_ports": 1},
        ]
    },
    {"listeners": [{"address": "127.0.0.1:0"}, {"address": "127.0.0.1:0", "name": "b"}]},
    listener(address="127.0.0.1:65535", first_broker_port=0),
    listener(address="127.0.0.1:65534", broker_ports=1),
]


@pytest.mark.parametrize("values", APART)
def test_ports_that_do_not(values: dict[str, Any]) -> None:
    assert settings_from(MINIMAL_SETTINGS | values)


def test_one_line_for_each_listener_that_collides() -> None:
    several = [{"address": f"127.0.0.1:{9092 + n}", "name": f"n{n}"} for n in range(5)]
    assert len(lines(drafted(MINIMAL_SETTINGS | {"listeners": several}))) == 4


@pytest.mark.parametrize(
    ("address", "bootstrap"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("127.0.0.1:9092", "localhost:9092"),
        ("127.0.0.1:9092", "[::ffff:127.0.0.1]:9092"),
        ("127.0.0.1:9092", "127.0.0.1:9100"),
        ("0.0.0.0:9092", "127.0.0.7:9192"),
        (":9092", "127.0.0.1:9092"),
        ("[::]:9092", "127.0.0.1:9092"),
        ("127.0.0.1:9092", "127.0.0.1:9464"),
        ("127.0.0.1:9092", "kafka.invalid:1,127.0.0.1:9092"),
    ],
)
def test_an_upstream_that_is_the_gate_itself(address: str, bootstrap: str) -> None:
    line = problem(**listener(address=address), **upstream(bootstrap=bootstrap))
    assert line.startswith(
        f"upstream.bootstrap: {bootstrap.rpartition(',')[2]} is the gate itself: it has "
    )


@pytest.mark.parametrize(
    ("address", "bootstrap"),
    [
        ("127.0.0.1:9092", "127.0.0.2:9092"),
        ("127.0.0.1:9092", "127.0.0.1:9193"),
        ("127.0.0.1:9092", "192.0.2.1:9092"),  # TEST-NET-1: on no machine
        ("0.0.0.0:9092", "192.0.2.1:9092"),
        ("0.0.0.0:9092", "[::1]:9092"),
        ("127.0.0.1:0", "127.0.0.1:9092"),
        ("0.0.0.0:9092", "kafka.invalid:9092"),
    ],
)
def test_an_upstream_that_is_not(address: str, bootstrap: str) -> None:
    assert settings_from(
        MINIMAL_SETTINGS | listener(address=address) | upstream(bootstrap=bootstrap)
    )


def test_an_address_of_an_interface_is_the_gate_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "batchval.proxy.settings.setting_checks.is_local",
        lambda address: str(address) == "192.0.2.1",
    )
    assert "192.0.2.1:9092 is the gate itself" in problem(
        **listener(address=":9092"), **upstream(bootstrap="192.0.2.1:9092")
    )


def test_a_name_that_is_not_answered_for_does_not_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> list[Any]:
        import time

        time.sleep(5)
        return []

    monkeypatch.setattr(sockets, "RESOLVE_S", 0.05)
    monkeypatch.setattr("socket.getaddrinfo", never)
    assert sockets.addresses_of("kafka.example.com") == frozenset()


# ---- globs ---------------------------------------------------------------------------------------

GLOBS = [
    (
        ["*", "orders.*"],
        "topics.policies[1].match: 'orders.*' never decides: '*' above matches every topic",
    ),
    (["[a-m]*", "[!a-m]*", "x"], "policies[2].match: 'x' never decides: '[!a-m]*' above matches"),
    (["[a-m]*", "[!a-m]*", "?x"], "policies[2].match: '?x' never decides: earlier globs match"),
    (["orders", "orders"], "policies[1].match: 'orders' never decides"),
    (["orders *"], "policies[0].match: 'orders *' matches no topic name"),
]


@pytest.mark.parametrize(("globs", "words"), GLOBS)
def test_a_glob_that_cannot_match(globs: list[str], words: str) -> None:
    policies = [{"match": glob, "max.message.bytes": n} for n, glob in enumerate(globs)]
    assert words in problem(topics={"policies": policies})


OBSERVE = [
    ([{"topics": "a b"}], "observe[0].topics: 'a b' matches no topic name"),
    ([{"principals": "alice"}], "observe[0].principals: 'alice' matches no principal"),
    (
        [{"principals": "User:*"}, {"topics": "x", "principals": "User:a"}],
        "observe[1]: has no effect: observe[0] covers",
    ),
    ([{}, {"topics": "x"}], "observe[1]: has no effect: observe[0] covers it"),
]


@pytest.mark.parametrize(("rules", "words"), OBSERVE)
def test_an_observe_rule_that_cannot_match(rules: list[dict[str, str]], words: str) -> None:
    assert words in problem(observe=rules)
    assert settings_from(
        MINIMAL_SETTINGS | {"observe": [{"topics": "a*"}, {"principals": "User:CN=*"}]}
    )


# ---- settings without effect ---------------------------------------------------------------------

CA = TLS | {"client_ca": "ca.pem"}
ADMIN = {"mechanism": "NONE"}
NO_EFFECT = [
    (listener(broker_ports=5, first_broker_port=0), "broker_ports: has no effect"),
    (listener(address="127.0.0.1:0", broker_ports=5), "broker_ports: has no effect"),
    (
        listener(max_connections=20_000),
        "max_connections: 20000 has no effect: limits.max_connections is 10000",
    ),
    (
        listener(tls=TLS | {"client_crl": "r.pem"}) | upstream(tls={}),
        "client_crl: has no effect: without client_ca",
    ),
    (
        listener(tls=TLS | {"client_crl": "r.pem", "client_auth": "none"}) | upstream(tls={}),
        "client_crl: has no effect: client_auth is none",
    ),
    (
        listener(tls=CA | {"client_auth": "none"}) | upstream(tls={}),
        "client_ca: has no effect: client_auth is none",
    ),
    (listener(trusted=True), "trusted: has no effect: claims_in is ignore"),
    (
        listener(trusted=True, tls=CA) | upstream(tls={}) | {"claims_in": "trust"},
        "trusted: has no effect: clients show certificates",
    ),
    (upstream(allow_plaintext=True, tls={}), "allow_plaintext: has no effect: upstream.tls is set"),
    (upstream(bootstrap="a:1,b:1,a:1"), "a:1 is listed twice"),
    (upstream(tls={"key_password": {"env": "A"}}), "key_password: has no effect without key"),
    (
        upstream(admin=ADMIN | {"password": PLANTED}),
        "admin.password: has no effect with mechanism NONE",
    ),
    (
        upstream(admin=ADMIN | {"refresh_ms": 5000}) | {"topics": {"from_cluster": False}},
        "refresh_ms: has no effect: topics.from_cluster is false",
    ),
    ({"validation": {"rules": "kafka", "extras": {"S1": "refuse"}}}, "extras: has no effect"),
    (
        {"limits": {"max_connections_per_address": 10_001}},
        "has no effect: max_connections is 10000",
    ),
    ({"limits": {"write_buffer_bytes": 1 << 30}}, "has no effect: max_bytes_held is 536870912"),
    (
        {"limits": {"max_unauthenticated_frame_bytes": 1 << 30}},
        "has no effect: max_frame_bytes is 104857600",
    ),
    (
        {"limits": {"max_frame_bytes": 6000, "max_partitions_per_request": 1001}},
        "1001 has no effect: a request of max_frame_bytes has at most 1000 partitions",
    ),
    (
        {"metrics": {"address": None, "topics": 5}},
        "metrics.topics: has no effect: metrics.address is null",
    ),
    (
        {"metrics": {"address": None, "remote": True}},
        "metrics.remote: has no effect: metrics.address is null",
    ),
    (
        {"metrics": {"remote": True}},
        "metrics.remote: has no effect: 127.0.0.1:9464 can be reached from this machine",
    ),
    (
        {"log": {"level": "error", "refusals_per_second": 5}},
        "refusals_per_second: has no effect: level error",
    ),
    (
        {"log": {"audit_max_files": 5}},
        "log.audit_max_files: has no effect: log.audit_file is not set",
    ),
    (
        {"log": {"audit_file": "/dev/null", "audit_max_bytes": None, "audit_max_files": 5}},
        "log.audit_max_files: has no effect: log.audit_max_bytes is null",
    ),
    (
        {"topics": {"policies": [{"match": "a", "retention.ms": 5}]}},
        "policies[0].retention.ms: has no effect: this key of Kafka",
    ),
]


@pytest.mark.parametrize(("values", "words"), NO_EFFECT)
def test_a_setting_without_effect(values: dict[str, Any], words: str) -> None:
    line = problem(**values)
    assert words in line
    assert PLANTED not in line


def test_a_default_may_be_without_effect() -> None:
    # --print-config writes them all.
    limits = {"max_frame_bytes": 6000}
    values = listener(broker_ports=100, first_broker_port=0) | {
        "limits": limits,
        "metrics": {"address": None},
    }
    assert settings_from(
        MINIMAL_SETTINGS | values | {"log": {"level": "error", "refusals_per_second": 100}}
    )


# ---- files ---------------------------------------------------------------------------------------


class Files:
    """A settings file in a folder with certificates; ``faults`` are those of the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        leaf = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        (folder / "gate.pem").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        self.put("gate.key", leaf.private_key_pem.bytes().decode(), 0o600)
        self.tls: dict[str, Any] = {"certificate": "gate.pem", "key": "gate.key"}
        self.admin: dict[str, Any] = {"username": "u", "password": PLANTED}

    def put(self, name: str, text: str, mode: int) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(mode)

    def faults(self, mode: int = 0o600, **more: Any) -> list[str]:
        values = listener(tls=self.tls) | upstream(tls={}, admin=self.admin) | more
        self.put("gate.yaml", yaml.safe_dump(values), mode)
        path = self.folder / "gate.yaml"
        draft = drafted_file(path)
        assert draft.settings is not None
        draft.add(file_faults(draft.settings, path))
        if not draft.faults:
            draft.finished()
            return []
        found = lines(draft)
        assert not any(PLANTED in line for line in found)
        return [re.sub(r"^.*gate\.yaml:\d+: ", "", line) for line in found]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666, 0o660, 0o602])
def test_a_secret_in_settings_that_others_can_read(files: Files, mode: int) -> None:
    assert files.faults() == []
    (line,) = files.faults(mode)
    path = files.folder / "gate.yaml"
    assert line == (
        f"upstream.admin.password: stands in a file of mode {mode:04o}, "
        "which other users can read or change: "
        f"chmod 600 {path}, or write {{file: PATH}} or {{env: NAME}}"
    )


def test_settings_without_a_secret_may_be_read_by_all(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_PASSWORD", PLANTED)
    files.admin["password"] = {"env": "GATE_PASSWORD"}
    assert files.faults(0o644) == []


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o600, False), (0o640, False), (0o644, True), (0o606, True)]
)
def test_a_secret_s_file_and_a_key_that_every_user_can_read(
    files: Files, mode: int, refused: bool
) -> None:
    files.put("password", PLANTED, mode)
    files.admin["password"] = {"file": "password"}
    (files.folder / "gate.key").chmod(mode)
    found = files.faults()
    wanted = [
        f"{key}: {path}: mode {mode:04o} lets every user read or change it: chmod o-rw {path}"
        for key, path in (
            ("listeners[0].tls.key", files.folder / "gate.key"),
            ("upstream.admin.password", files.folder / "password"),
        )
    ]
    assert found == (wanted if refused else [])


def test_a_literal_key_password_is_a_secret_too(files: Files) -> None:
    files.admin["password"] = {"env": "PATH"}
    files.tls["key_password"] = PLANTED
    found = files.faults(0o644)
    assert [line.split(":")[0] for line in found] == ["listeners[0].tls.key_password"] * 2
    assert "stands in a file of mode 0644" in found[0]
    assert found[1].endswith("gate.key is not encrypted")


def test_files_that_do_not_fit(files: Files) -> None:
    files.put("gate.key", trustme.CA().issue_cert("a").private_key_pem.bytes().decode(), 0o600)
    (line,) = files.faults()
    assert line.startswith("listeners[0].tls: ")
    assert "the key is not that of the certificate" in line


def test_all_files_that_are_missing_at_once(files: Files) -> None:
    files.tls = {
        "certificate": "no.pem",
        "key": "no.key",
        "client_ca": "no-ca.pem",
        "client_crl": "no.crl",
    }
    files.admin["password"] = {"file": "no-password"}
    found = files.faults(state_directory="nowhere")
    assert [line.partition(":")[0] for line in found] == [
        "listeners[0].tls.certificate",
        "listeners[0].tls.client_ca",
        "listeners[0].tls.client_crl",
        "listeners[0].tls.key",
        "state_directory",
        "upstream.admin.password",
    ]
    assert all("No such file or directory" in line or "does not exist" in line for line in found)


def test_a_state_directory_that_cannot_be_written(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files.folder / "state").mkdir()
    assert files.faults(state_directory="state") == []
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert files.faults(state_directory="state")[0].endswith("this user may not write there")


def test_an_audit_file_that_cannot_be_written(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files.folder / "state").mkdir(exist_ok=True)
    (files.folder / "there").write_text("")
    fault = {
        name: files.faults(log={"audit_file": name})
        for name in ("new", "there", "state", "nowhere/new")
    }
    assert fault["new"] == fault["there"] == []
    assert fault["state"][0].endswith("state: is a directory, expected a file")
    assert "nowhere does not exist: mkdir -p " in fault["nowhere/new"][0]
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert files.faults(log={"audit_file": "there"})[0].endswith("this user may not write to it")
    assert "this user may not make a file in" in files.faults(log={"audit_file": "new"})[0]


# ---- all of it at once ---------------------------------------------------------------------------

EVERYTHING = f"""\
mode: both
mode: enforce
observe:
  - topics: "a b"
  - principals: alice
listeners:
  - address: 127.0.0.1:19800
    prot: 1
    tls: {{certificate: no.pem, key: no.key, client_auth: none, client_crl: no.crl}}
  - address: 127.0.0.1:19802
    name: second
  - address: "9093"
    name: third
  - name: fourth
    tls: {{certificate: no.pem, key: {{a: b}}, key_password: [{PLANTED}]}}
upstream:
  bootstrap: [127.0.0.1:19803, nowhere]
  allow_plaintext: true
  tls: {{}}
  admin: {{username: gate, password: {PLANTED}, refresh_ms: 5000}}
topics:
  from_cluster: false
  policies:
    - match: "*"
      max.message.bytes: "12"
      cleanup.policy: compaction
      compression.zstd.level: 99
      message.timestamp.type: Created
      retention.ms: 5
      max_mesage_bytes: 2
    - match: "orders.*"
    - 7
validation: {{kafka_version: 3.9}}
limits: {{max_frame_bytes: 1, idle_timeout_ms: ten, max_connections_per_address: 20000}}
claims_in: audit:2
claims_out: tag
metrics: {{address: 0.0.0.0:9464}}
state_directory: nowhere
log: {{level: error, refusals_per_second: 5}}
"""
WANTED = """\
2: mode: stands twice
4: observe[0].topics: 'a b' matches no topic name
5: observe[1].principals: 'alice' matches no principal
8: listeners[0].prot: unknown key
9: listeners[0].tls.certificate: no.pem: No such file
9: listeners[0].tls.key: no.key: No such file
9: listeners[0].tls.client_crl: no.crl: No such file
9: listeners[0].tls.client_crl: has no effect: client_auth is none
10: listeners[1].address: port 19802 of listener second is among the ports 19801 to 19900
12: listeners[2].address: must be HOST:PORT
14: listeners[3].address: is missing
15: listeners[3].tls.certificate: no.pem: No such file
15: listeners[3].tls.key: must be the path of a file
15: listeners[3].tls.key_password: must be text, {file: PATH} or {env: NAME}
17: upstream.bootstrap: 127.0.0.1:19803 is the gate itself
17: upstream.bootstrap[1]: must be HOST:PORT
18: upstream.allow_plaintext: has no effect
20: upstream.admin.refresh_ms: has no effect
20: upstream.admin.password: stands in a file of mode 0644
25: topics.policies[0].max.message.bytes: must be a whole number
26: topics.policies[0].cleanup.policy: must be delete, compact or both, not 'compaction'
27: topics.policies[0].compression.zstd.level: must be a whole number from -131072 to 22, not 99
28: topics.policies[0].message.timestamp.type: must be one of CreateTime, LogAppendTime, not
29: topics.policies[0].retention.ms: has no effect
30: topics.policies[0].max_mesage_bytes: unknown key (nearest known key: max.message.bytes)
31: topics.policies[1].match: 'orders.*' never decides
32: topics.policies[2]: must be keys and values
33: validation.kafka_version: must be in quotes
34: limits.max_frame_bytes: must be at least 1024, not 1
34: limits.idle_timeout_ms: must be a whole number
34: limits.max_connections_per_address: 20000 has no effect
35: claims_in: audit needs a rate
37: metrics.address: 0.0.0.0:9464 can be reached from other machines
38: state_directory: nowhere: does not exist: mkdir -p nowhere
39: log.refusals_per_second: has no effect
"""


def test_every_fault_of_a_file_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("gate.yaml")
    path.write_text(EVERYTHING)
    path.chmod(0o644)
    draft = drafted_file(path)
    assert draft.settings is not None
    draft.add(file_faults(draft.settings, path))
    found, wanted = lines(draft), WANTED.splitlines()
    assert len(found) == len(wanted) <= 50
    for start in wanted:
        assert any(line.startswith(f"gate.yaml:{start}") for line in found), (start, found)
    assert not any(PLANTED in line or "stand-in" in line for line in found)


def test_a_fault_hides_only_what_depends_on_it(tmp_path: Path) -> None:
    # A wrong ``claims_in`` says nothing about ``claims_out``; the rest is compared all the same.
    values = {
        "claims_in": "audit:2",
        "claims_out": "tag",
        "limits": {"threads": 0, "max_bytes_held": 2048},
    }
    found = lines(drafted(MINIMAL_SETTINGS | values))
    assert [line.partition(":")[0] for line in found] == [
        "claims_in",
        "limits.threads",
        "limits.max_bytes_held",
    ]


def test_an_option_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        yaml.safe_dump(MINIMAL_SETTINGS | {"mode": "observe", "log": {"format": "xml"}})
    )
    draft = drafted_file(path, {"mode": "both"})
    assert [line.replace(str(path), "FILE") for line in lines(draft)] == [
        "mode: must be enforce or observe",
        "FILE:4: log.format: must be text or json",
    ]
