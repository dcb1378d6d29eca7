"""franz-go sees through the gate what it sees without it, line by line; the gate is who refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.chain.conftest import GO_MOD, POLICIES
from tests.interop.kafka_broker import KafkaBroker
from tests.support.proxy import RunningProxy, eventually

pytestmark = pytest.mark.jvm


def test_each_line_is_the_same(broker: KafkaBroker, tmp_path: Path) -> None:
    program = str(tmp_path / "client")
    subprocess.run(["go", "build", "-mod=readonly", "-o", program, "."], cwd=GO_MOD.parent, check=True, timeout=300)
    with RunningProxy(broker.bootstrap, policies=POLICIES) as gate:
        eventually(lambda: gate.proxy.listening)
        ports = ",".join(str(port) for port in sorted(gate.own_ports()))
        runs = [
            subprocess.Popen([program, *args], stdout=subprocess.PIPE, text=True)
            for args in ((broker.bootstrap, "godirect-", str(broker.port)), (gate.bootstrap, "gogated-", ports))
        ]
        said = [run.communicate(timeout=180)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    direct, gated = (dict(line.split(": ", 1) for line in text.splitlines()) for text in said)
    assert gated == direct
    assert gated["node"] == "true"
    assert gated["codecs read"].startswith("100 records")
    assert gated["committed"].startswith("10 records")
    assert gated["group goes on at"] == "60"
    assert gated["too large zstd true"].startswith("MESSAGE_TOO_LARGE")
    assert gated["no key none false"].startswith("INVALID_RECORD")
    assert gated["-50 hours none true"].startswith("INVALID_TIMESTAMP")
    assert gated["what is there"] == "6"
    refused = {(refusal.topic, refusal.error) for refusal in gate.refusals if refusal.enforced}
    assert refused == {
        ("gogated-small", "MESSAGE_TOO_LARGE"),
        ("gogated-compact", "INVALID_RECORD"),
        ("gogated-fresh", "INVALID_TIMESTAMP"),
    }
