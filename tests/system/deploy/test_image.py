"""The image of deploy/Containerfile, made and run by its steps in bare Debian trees: no container
runtime is needed, but root and debootstrap are.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.proxy import eventually
from tests.system.deploy import containerfile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("root and debootstrap are needed: apt-get install debootstrap")
    with tempfile.TemporaryDirectory(prefix="batchval-image-") as folder:
        bare = Path(folder) / "bare"
        suite = containerfile.SUITES[containerfile.base()]
        subprocess.run(
            ["debootstrap", "--variant=minbase", suite, str(bare)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        Path(folder).chmod(0o755)
        yield containerfile.build(Path(folder), bare)


def test_it_has_no_compiler_and_no_pip(image: Path) -> None:
    programs = {
        path.name
        for folder in ("usr/bin", "opt/batchval/bin")
        for path in (image / folder).iterdir()
    }
    assert not programs & {"cc", "gcc", "make", "cython", "pip", "pip3"}
    assert "batchval" in programs


@pytest.mark.alone
def test_a_gate_runs_in_it_read_only_without_privileges(image: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 10001, 10001)
    port = free_ports(3)
    settings = {
        "listeners": [{"address": f"127.0.0.1:{port}"}],
        "upstream": {"bootstrap": "127.0.0.1:1"},
        "state_directory": containerfile.the("VOLUME"),
    }
    (image / "etc" / "batchval").mkdir(exist_ok=True)
    (image / "etc" / "batchval" / "gate.yaml").write_text(json.dumps(settings))
    environment = {"STATE": str(tmp_path), "PATH": os.environ["PATH"]}
    whole = [*containerfile.words("ENTRYPOINT"), *containerfile.words("CMD")]
    gate = subprocess.Popen(
        containerfile.command(image, *whole),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert gate.stdout is not None
        lines = iter(gate.stdout.readline, "")
        assert any("listening on" in line for line in lines)
        health = json.loads(containerfile.the("HEALTHCHECK").partition("CMD ")[2])
        subprocess.run(
            containerfile.command(image, *health), env=environment, check=True, timeout=30
        )
        touched = subprocess.run(
            containerfile.command(image, "/usr/bin/touch", "/opt/batchval/x"),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Read-only file system" in touched.stderr
        status = (Path("/proc") / str(_gate_in(gate.pid)) / "status").read_text()
        assert "Uid:\t10001\t10001\t10001\t10001" in status
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        os.kill(_gate_in(gate.pid), signal.SIGTERM)
        assert eventually(lambda: gate.poll() is not None)
        assert gate.returncode == 0
    finally:
        gate.kill()
        gate.wait()
    assert all(path.stat().st_uid == 10001 for path in tmp_path.iterdir())


def _gate_in(pid: int) -> int:
    """Return the process of the gate: the child of unshare."""
    return int((Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()[0])
