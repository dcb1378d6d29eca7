"""Server names where workers serve the clients: the parent accepts, a worker reads the name."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
import yaml

from tests.support.proxy import eventually, other_frame, read_frame
from tests.system.auth.conftest import Certificates
from tests.unit.proxy.test_discovery import NamingBroker
from tests.unit.proxy_settings.test_command import Gate

SNI = {"bootstrap": "kafka.gate.example", "broker": "broker-{node}.gate.example"}


@pytest.mark.long
def test_each_worker_finds_the_broker_that_a_name_means(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.issue("gate", "*.gate.example")
    certificates.path("gate.key").chmod(0o600)
    context = certificates.context()
    with NamingBroker() as first, NamingBroker() as second:
        brokers = {1: first, 2: second}
        first.named = {1: first.at}
        listener = {"address": "127.0.0.1:0", "sni": SNI, "tls": certificates.pair("gate")}
        settings = {
            "listeners": [listener],
            "upstream": {"bootstrap": first.address},
            "metrics": {"address": None},
            "log": {"format": "json"},
            "workers": 2,
        }
        (tmp_path / "gate.yaml").write_text(yaml.safe_dump(settings))

        def ask(name: str) -> None:
            with (
                socket.create_connection(("127.0.0.1", port), 20) as sock,
                context.wrap_socket(sock, server_hostname=name) as secured,
            ):
                secured.sendall(other_frame(7))
                assert read_frame(secured) == struct.pack(">i", 7)

        with Gate("--config", str(tmp_path / "gate.yaml")) as gate:
            port = int(gate.facts["listeners"]["default"].rpartition(":")[2])
            for _ in range(4):  # connections go to workers in turns
                ask("broker-1.gate.example")
            first.named = {node_id: broker.at for node_id, broker in brokers.items()}
            ask("broker-2.gate.example")  # the parent asks the cluster at once
            for _ in range(4):
                ask("broker-2.gate.example")
            eventually(lambda: [len(one.frames) for one in brokers.values()] == [4, 5])
