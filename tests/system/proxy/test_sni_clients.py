"""Real clients, two brokers and one port: librdkafka and Java follow the names in answers.

The brokers are librdkafka's. Names are resolved for these processes alone: for librdkafka by a
library that is loaded before libc (names.c), for Java by a hosts file of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from batchval.proxy.settings.host_patterns import ServerNames
from tests.support.fixtures import needs_kafka
from tests.support.gate_process import ROOT
from tests.support.proxy import RunningProxy, eventually
from tests.system.auth.conftest import Certificates
from tests.system.interop.kafka_broker import java_command
from tests.unit.proxy.test_sni import listening

pytestmark = pytest.mark.jvm

COUNT = 200
DOMAIN = ".gate.example"
NAMES = ServerNames(f"kafka{DOMAIN}", f"broker-{{node}}{DOMAIN}")
PRELOADED = Path(__file__).resolve().parents[2] / "support" / "names.c"


def librdkafka(folder: Path, *words: str) -> subprocess.Popen[str]:
    library = folder / "names.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-O1", "-o", library, PRELOADED, "-ldl"], check=True
    )
    environment = os.environ | {"LD_PRELOAD": str(library), "RESOLVED_DOMAIN": DOMAIN}
    command = [sys.executable, "-m", "tests.support.named_client", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def java(folder: Path, *words: str) -> subprocess.Popen[str]:
    hosts = folder / "hosts"
    names = [NAMES.bootstrap, *(NAMES.broker.host_of(node_id) for node_id in (1, 2))]
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    jvm = [f"-Djdk.net.hosts.file={hosts}"]
    command = java_command("tests/unit/proxy/java/Named.java", *words, heap="128m", jvm=jvm)
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def topic_of_both(keeper: Producer, name: str) -> str:
    """Return a topic of which each broker leads a partition: who leads one is left to chance."""
    for n in range(100):
        partitions = keeper.list_topics(f"{name}-{n}", timeout=10).topics[f"{name}-{n}"].partitions
        if {one.leader for one in partitions.values()} == {1, 2}:
            return f"{name}-{n}"
    raise AssertionError("one broker led all partitions of 100 topics")


def test_clients_reach_both_brokers_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_kafka()  # for its Java client
    certificates = Certificates(tmp_path)
    certificates.issue("gate", f"*{DOMAIN}")
    keeper = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "unused", "log_level": 0})
    brokers = [f"{one.host}:{one.port}" for one in keeper.list_topics(timeout=10).brokers.values()]
    with RunningProxy(*brokers, listen_tls=listening(certificates), sni=NAMES) as gate:
        eventually(lambda: set(gate.proxy.listening) == {1, 2})
        cluster = gate.proxy.cluster
        named, chosen = cluster.named, []
        monkeypatch.setattr(
            cluster, "named", lambda node_id: chosen.append(node_id) or named(node_id)
        )
        port = gate.address[1]
        leaders = [f"{NAMES.broker.host_of(node_id)}:{port}" for node_id in (1, 2)]
        processes = [
            start(
                tmp_path,
                f"{NAMES.bootstrap}:{port}",
                topic_of_both(keeper, start.__name__),
                str(COUNT),
                str(certificates.ca),
            )
            for start in (librdkafka, java)
        ]
        for process in processes:
            assert process.communicate(timeout=60)[0].splitlines() == [
                *leaders,
                f"{COUNT} of {COUNT}",
            ]
        assert set(chosen) == {None, 1, 2}
        # a client that ends does not wait for a handshake that it has begun
        assert gate.counters.handshakes_failed.keys() <= {"client"}
        assert gate.own_ports() == {port}
    keeper.flush(1)
