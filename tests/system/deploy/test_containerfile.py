"""deploy/Containerfile agrees with the package, the chart and the gate (test_image builds it)."""

from __future__ import annotations

import re

import yaml

from batchval.proxy.settings.config import Metrics
from tests.repo.contract.test_supply_chain import pins
from tests.system.deploy.charts import CHART
from tests.system.deploy.containerfile import FILE, ROOT, instructions, the, tracked, words
from tools import lock

WORKLOAD = (CHART / "templates" / "workload.yaml").read_text("utf-8")
TEXT = FILE.read_text("utf-8")


def test_what_it_copies_is_in_the_repository() -> None:
    copied = [
        one.value.split()
        for one in instructions()
        if one.word == "COPY" and "--from" not in one.value
    ]
    sources = [source for parts in copied for source in parts[:-1]]
    assert len(sources) > 8
    assert [source for source in sources if not list(tracked(source))] == []
    packages = {path.name for path in ROOT.glob("*batchval*") if (path / "__init__.py").exists()}
    assert packages <= set(sources)


def test_it_installs_what_is_locked_and_nothing_that_builds() -> None:
    installs = re.findall(r"(\S+)/bin/pip install ([^&\n]*)", TEXT)
    assert len(installs) == 3
    for _, options in installs:
        assert (
            "--require-hashes" in options
            or "--no-index --no-deps" in options
            or "--no-deps --no-index" in options
        )
    locked = pins("gate")
    assert not {"cython", "setuptools"} & locked.keys()
    assert lock.FILES["gate"] == ("proxy",)
    assert "--only-binary :all: --requirement requirements/gate.txt" in TEXT


def test_its_user_is_the_charts() -> None:
    user = the("USER")
    assert user == "10001:10001"
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        assert f"{key}: {user.partition(':')[0]}\n" in WORKLOAD


def test_its_command_is_the_charts() -> None:
    assert words("ENTRYPOINT") == ["/opt/batchval/bin/batchval"]
    arguments = re.search(r"args: (\[.*\])", WORKLOAD)
    assert arguments is not None
    assert words("CMD") == yaml.safe_load(arguments[1])
    assert f"mountPath: {the('VOLUME')}}}" in WORKLOAD


def test_its_health_is_asked_where_a_gate_answers() -> None:
    address = Metrics().address
    assert f"http://{address}/livez" in the("HEALTHCHECK")
    assert the("STOPSIGNAL") == "SIGTERM"


def test_its_python_is_one_that_the_package_supports() -> None:
    """Check Debian 13's Python, 3.13."""
    assert re.search("^ARG BASE=debian:13-slim@sha256:[0-9a-f]{64}$", TEXT, re.MULTILINE)
    assert "Programming Language :: Python :: 3.13" in (ROOT / "pyproject.toml").read_text("utf-8")
