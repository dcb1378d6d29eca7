"""Clients for whom the brokers' own ports are out of reach: what they produce and consume went
through the gate alone.

In a network namespace at the other end of a cable, where the gate's end is all there is; and,
needing no privileges, with a connect() that refuses other ports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gate_process import ROOT
from tests.support.namespaces import neighbour
from tests.support.proxy import RunningProxy, eventually
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

COUNT = 200
CAGE = Path(__file__).resolve().parents[2] / "support" / "cage.c"


@pytest.fixture(scope="module")
def cage(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the library to be loaded first."""
    library = tmp_path_factory.mktemp("cage") / "cage.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", library, CAGE, "-ldl"], check=True)
    return str(library)


def client(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.caged_client", *words]


def run_all(runs: dict[str, tuple[list[str], dict[str, str]]]) -> dict[str, list[str]]:
    """Return what each client prints; all run at once."""
    started = {
        name: subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for name, (words, environment) in runs.items()
    }
    return {
        name: process.communicate(timeout=120)[0].splitlines() for name, process in started.items()
    }


def test_in_a_namespace_and_with_a_connect_that_refuses(broker: KafkaBroker, cage: str) -> None:
    with neighbour() as there:
        host = "127.0.0.1" if there is None else there.here
        with RunningProxy(broker.bootstrap, listen=(host, 0)) as gate:
            eventually(lambda: gate.proxy.listening)
            ports = ",".join(str(port) for port in gate.own_ports())
            environment = dict(os.environ)
            caged = environment | {"LD_PRELOAD": cage, "CAGE_PORTS": ports}
            # librdkafka, kafka-python, aiokafka; the broker's port is out of reach by its own
            # address and by the gate's
            elsewhere = [broker.bootstrap, f"{host}:{broker.port}"]
            runs = {}
            for kind in "LKA":
                runs[f"refused-{kind}"] = (
                    client(kind, gate.bootstrap, f"refused-{kind}", f"{COUNT}", *elsewhere),
                    caged,
                )
                if there is not None:
                    words = client(kind, gate.bootstrap, f"far-{kind}", f"{COUNT}", *elsewhere)
                    runs[f"far-{kind}"] = (there.command(*words), environment)
            printed = run_all(runs)
            assert printed == {
                name: [*["out of reach"] * 2, f"{COUNT} of {COUNT}"] for name in runs
            }
            assert gate.counters.produce_requests_total > 0
            assert gate.proxy.traffic.requests_by_api()[1] > 0


def test_the_cage_is_one(broker: KafkaBroker, cage: str) -> None:
    # The check above can fail: without the cage the broker is reached, with
    # it nothing is.
    free = client("L", broker.bootstrap, "free", "1", broker.bootstrap)
    environment = dict(os.environ)
    assert shutil.which(free[0])
    assert run_all({"free": (free, environment)}) == {"free": ["1 of 1"]}
    reach = [
        sys.executable,
        "-c",
        f"import socket; socket.create_connection(('127.0.0.1', {broker.port}), 5)",
    ]
    for allowed, code in (("1", 1), (f"1,{broker.port}", 0)):
        caged = environment | {"LD_PRELOAD": cage, "CAGE_PORTS": allowed}
        assert (
            subprocess.run(reach, env=caged, stderr=subprocess.DEVNULL, check=False).returncode
            == code
        )
