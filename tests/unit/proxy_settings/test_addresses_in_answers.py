"""Settings of the addresses in answers: what is refused, and what a certificate covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import ConfigError, drafted, drafted_file, settings_from
from batchval.proxy.tls.tls import certificate_warnings
from tests.support.authorities import Authority
from tests.unit.proxy_settings.test_command import ran

TLS = {"certificate": "a.pem", "key": "a.key"}
SNI = {"bootstrap": "kafka.example.com", "broker": "broker-{node}.kafka.example.com"}


def settings(**listener: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"listeners": [{"address": "127.0.0.1:9092"} | listener]}
    return values | {"upstream": {"bootstrap": "kafka.invalid:9999", "tls": {}}}


def problems(**listener: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        settings_from(settings(**listener))
    return refused.value.problems


def sni(**more: Any) -> dict[str, Any]:
    return {"tls": TLS, "sni": SNI | more}


REFUSED = [
    ({"advertised_host": "b{id}.e"}, "'b{id}.e' has the unknown placeholder {id}: only {node} is"),
    (
        {"advertised_host": "{node}.{node}"},
        "'{node}.{node}' has {node} 2 times, expected once",
    ),
    ({"advertised_host": "b{node.example"}, "cannot be a host: at most 255 letters, digits"),
    ({"advertised_host": "b" * 250 + "{node}"}, "cannot be a host: at most 255"),
    ({"advertised_host": ""}, "cannot be a host"),
    (
        {"advertised_port": 9092},
        "all brokers would have one address: set advertised_host with {node}, or sni",
    ),
    (
        {"advertised_port": 9092, "advertised_host": "gate"},
        "advertised_port: all brokers would have one address",
    ),
    ({"advertised_port": 0}, "advertised_port: must be at least 1, not 0"),
    ({"advertised_first_port": 65536}, "advertised_first_port: must be at most 65535, not 65536"),
    (
        {"advertised_port": 1, "advertised_host": "b{node}", "advertised_first_port": 30000},
        "advertised_first_port: cannot be combined with advertised_port",
    ),
    (
        {"advertised_first_port": 65500},
        "ports 65500 to 65599 end above 65535: choose a lower one, or fewer broker_ports",
    ),
    (
        {"advertised_first_port": 30000, "first_broker_port": 0},
        "advertised_first_port: needs fixed ports of brokers, and theirs are any free ones",
    ),
    (
        {"advertised_port": 1, "advertised_host": "b{node}", "address": "127.0.0.1:0"},
        "advertised_port: needs fixed ports of brokers",
    ),
    ({"sni": SNI}, "sni: needs tls: the server name is a part of the TLS handshake"),
    (
        sni() | {"advertised_host": "gate"},
        "advertised_host: has no effect: clients are sent the names of sni",
    ),
    (sni() | {"advertised_first_port": 1}, "has no effect: all brokers are at one port"),
    (sni() | {"first_broker_port": 9100}, "first_broker_port: has no effect: with sni all"),
    (sni() | {"broker_ports": 3}, "broker_ports: has no effect: with sni all brokers are at"),
    (
        sni(bootstrap="Broker-7.kafka.example.com"),
        "sni.bootstrap: 'Broker-7.kafka.example.com' is also the name of broker 7",
    ),
    (sni(broker="broker.kafka.example.com"), "needs {node}, which stands for the broker's id"),
    (sni(bootstrap="{node}.example.com"), "is one name for all brokers: {node} is not allowed"),
    (sni(broker="b{n}.example.com"), "has the unknown placeholder {n}: only {node} is allowed"),
    (
        sni(bootstrap="kafka"),
        "sni.bootstrap: 'kafka' needs a '.': Java clients send no server name without one",
    ),
    (
        sni(bootstrap="127.0.0.1"),
        "'127.0.0.1' ends as an IP address does: clients send no server name for those",
    ),
    (sni(bootstrap="[::1]"), "cannot be a server name: labels of 1 to 63 letters, digits and '-'"),
    (sni(bootstrap="kafka.example.com."), "cannot be a server name"),
    (sni(broker="b_{node}.example.com"), "cannot be a server name"),
    (sni(bootstrap=f"{'a' * 64}.example.com"), "cannot be a server name"),
    (sni(broker=".".join(["a" * 60] * 4) + ".{node}"), "253 characters in all"),
    (
        sni(bootstrap="kafka.bücher.example"),
        "must be written as in DNS: kafka.xn--bcher-kva.example",
    ),
    (sni(broker="büro-{node}.example"), "must be written as in DNS: xn--bro-{node}-"),
    (sni(broker=7), "sni.broker: must be text"),
    ({"tls": TLS, "sni": {"bootstrap": "a.b"}}, "sni.broker: is missing"),
]


@pytest.mark.parametrize(("listener", "words"), REFUSED)
def test_keys_that_are_refused(listener: dict[str, Any], words: str) -> None:
    (line,) = problems(**listener)
    assert words in line


TAKEN: list[dict[str, Any]] = [
    {"advertised_host": "b{node}.example.com"},
    {"advertised_host": "b{node}", "advertised_port": 9092},
    {"advertised_first_port": 30000},
    {"advertised_host": "::1", "advertised_first_port": 65436},
    sni(),
    sni() | {"advertised_port": 443, "broker_ports": 100},
    sni(bootstrap="xn--bcher-kva.example", broker="{node}.xn--bcher-kva.example"),
    sni() | {"address": "127.0.0.1:65535"},
]


@pytest.mark.parametrize("listener", TAKEN)
def test_keys_that_are_taken(listener: dict[str, Any]) -> None:
    settings_from(settings(**listener))


def test_a_wrong_name_hides_no_other_fault() -> None:
    found = problems(**sni(broker="b", bootstrap="a") | {"max_connections": 20_000})
    assert len(found) == 3


def test_an_sni_listener_takes_one_port(tmp_path: Path) -> None:
    # Neither the range of broker_ports nor its descriptors are reserved.
    Authority("A").issue(tmp_path, "gate", "a")
    two: dict[str, Any] = settings(**sni())
    two["listeners"].append({"name": "plain", "address": "127.0.0.1:9093", "first_broker_port": 0})
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(two))
    gate = Gate(drafted_file(path).finished())
    options = gate.proxies["default"].options
    assert options.sni is not None
    assert options.sni.node_of("broker-4.kafka.example.com") == 4
    assert settings_from(two).listeners[0].broker_range == range(0)


# ---- certificates --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def warnings(folder: Path, authority: trustme.CA, *names: str, **listener: Any) -> list[str]:
    leaf = authority.issue_cert(*names)
    leaf.private_key_and_cert_chain_pem.write_to_path(folder / "a.pem")
    leaf.private_key_pem.write_to_path(folder / "a.key")
    (folder / "a.key").chmod(0o600)
    values = settings(tls=TLS, **listener)
    draft = drafted(values, folder=folder)
    draft.add(file_faults(draft.finished(), None))
    found = certificate_warnings(draft.finished())
    return [fault.text.replace(str(folder), "") for fault in found]


COVERED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("kafka.example.com", "*.kafka.example.com"), {"sni": SNI}),
    (
        ("KAFKA.example.com", "broker-1.kafka.example.com", "broker-2.kafka.example.com"),
        {"sni": SNI},
    ),
    (("*.example.com",), {"sni": SNI | {"broker": "b{node}.example.com"}}),
    (("*.example.com",), {"advertised_host": "b{node}.example.com"}),
    (("127.0.0.1",), {"advertised_host": "127.0.0.1"}),
    (("gate.example.com",), {"advertised_host": "gate.example.com"}),
    (("other.example.com",), {}),
]


@pytest.mark.parametrize(("names", "listener"), COVERED)
def test_certificates_that_cover(
    tmp_path: Path, authority: trustme.CA, names: tuple[str, ...], listener: dict[str, Any]
) -> None:
    assert warnings(tmp_path, authority, *names, **listener) == []


def test_certificates_that_do_not_cover(tmp_path: Path, authority: trustme.CA) -> None:
    def found(*names: str, **listener: Any) -> list[str]:
        return warnings(tmp_path, authority, *names, **listener)

    text = "the certificate /a.pem does not cover '{}': it has {}"
    bootstrap, broker = SNI.values()
    assert found("*.example.com", sni=SNI) == [text.format(broker, "*.example.com")]
    assert found("*.kafka.example.com", sni=SNI) == [text.format(bootstrap, "*.kafka.example.com")]
    assert found("broker-01.kafka.example.com", bootstrap, sni=SNI) == [
        text.format(broker, f"broker-01.kafka.example.com, {bootstrap}")
    ]
    deep = SNI | {"broker": "b.{node}.example.com", "bootstrap": "a.example.com"}
    assert found("a.example.com", "*.example.com", sni=deep) == [
        text.format("b.{node}.example.com", "a.example.com, *.example.com")
    ]
    assert found("127.0.0.1", "10.0.0.1", advertised_host="10.0.0.2") == [
        text.format("10.0.0.2", "127.0.0.1, 10.0.0.1")
    ]
    many = [f"{n}.example.com" for n in range(7)]
    (line,) = found(*many, advertised_host="gate")
    assert line.endswith("it has " + ", ".join(many[:5]) + " and 2 more")


def test_a_certificate_of_a_common_name_and_one_that_has_expired(tmp_path: Path) -> None:
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    from tests.support.authorities import pem, write_key

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gate.example.com")])
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    builder = (
        builder.serial_number(1).not_valid_before(past).not_valid_after(past + dt.timedelta(days=1))
    )
    (tmp_path / "a.pem").write_bytes(pem(builder.sign(key, hashes.SHA256())))
    write_key(key, tmp_path / "a.key")

    def found(host: str) -> list[str]:
        draft = drafted(settings(tls=TLS, advertised_host=host), folder=tmp_path)
        return [fault.text for fault in certificate_warnings(draft.finished())]

    assert found("gate.example.com") == []
    assert len(found("other.example.com")) == 1


@pytest.mark.long
def test_check_config_prints_the_warning(tmp_path: Path) -> None:
    Authority("A").issue(tmp_path, "gate", "a")  # for localhost
    (tmp_path / "a.key").chmod(0o600)
    path = tmp_path / "gate.yaml"
    words = f"the certificate {tmp_path}/a.pem does not cover"
    path.write_text(yaml.safe_dump(settings(**sni(bootstrap="kafka"))))
    code, _, err = ran("--check-config", "--config", path)
    assert code == 2
    assert [line.split(": ")[3] for line in err if words in line] == ["listeners[0].sni.broker"]
    path.write_text(yaml.safe_dump(settings(**sni())))
    code, out, err = ran("--check-config", "--config", path)
    assert (code, out) == (0, "the settings are valid\n")
    start = f"batchval proxy: warning: {path}"
    assert [line for line in err if words in line] == [
        f"{start}:4: listeners[0].sni.bootstrap: {words} '{SNI['bootstrap']}': it has localhost",
        f"{start}:5: listeners[0].sni.broker: {words} '{SNI['broker']}': it has localhost",
    ]


def test_files_that_cannot_be_read_give_no_warning(tmp_path: Path) -> None:
    draft = drafted(settings(**sni()), folder=tmp_path)
    assert list(certificate_warnings(draft.finished())) == []
