"""deploy/helm: the chart lints and renders, Kubernetes' types take what it renders, and a gate
takes its settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from batchval import __version__
from batchval.cli.proxy import check_files, draft_of
from batchval.proxy.settings.config import Limits
from tests.support.go import GoMissing
from tests.system.deploy.charts import CHART, Rendered, rendered

FILES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMES = [path.name.removesuffix("-values.yaml") for path in FILES]
#: Kinds of other projects, whose types Kubernetes does not have.
FOREIGN = {"ServiceMonitor"}
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
UPSTREAM = {"upstream": {"bootstrap": ["broker:9092"]}}
MINIMAL_SETTINGS = {"settings": UPSTREAM}
#: Values that are wrong, and what the error says.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no upstream": (
        {"settings": {"upstream": {"bootstrap": []}}},
        "settings.upstream.bootstrap is required",
    ),
    "unknown key": (MINIMAL_SETTINGS | {"replica": 3}, "replica"),
    "replicas": (MINIMAL_SETTINGS | {"replicas": "3"}, "replicas"),
    "broker above the range": (
        MINIMAL_SETTINGS | {"brokerIds": [100]},
        "broker 100 is not below broker_ports (100)",
    ),
    "any port": ({"settings": UPSTREAM | {"listeners": [{"address": "0.0.0.0:0"}]}}, "address"),
    "metrics address": ({"settings": UPSTREAM | {"metrics": {"address": "0.0.0.0:1"}}}, "metrics"),
}


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    """Render everything at once: the program takes longer to start than to render."""
    folder = tmp_path_factory.mktemp("values")
    paths = dict(zip(NAMES, FILES, strict=True))
    for name, (values, _) in WRONG.items():
        # over the chart's own values, as helm does it: lists are replaced, tables are merged
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        paths[name] = path
    try:
        return dict(zip(paths, rendered(list(paths.values())), strict=True))
    except GoMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=NAMES)
def chart(request: pytest.FixtureRequest, charts: dict[str, Rendered]) -> Rendered:
    found = charts[request.param]
    assert found.error == ""
    return found


def pod(chart: Rendered) -> dict[str, Any]:
    """Return the pod's specification."""
    kind = "StatefulSet" if "StatefulSet" in chart.kinds() else "Deployment"
    found: dict[str, Any] = chart.one(kind)["spec"]["template"]["spec"]
    return found


def settings(chart: Rendered) -> dict[str, Any]:
    """Return the gate's settings."""
    found: dict[str, Any] = yaml.safe_load(chart.one("ConfigMap")["data"]["gate.yaml"])
    return found


def size(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def test_there_are_several_files_of_values() -> None:
    assert len(FILES) >= 3


def test_lint_finds_nothing(chart: Rendered) -> None:
    assert [message for message in chart.lint if not message.startswith("[INFO]")] == []


def test_each_manifest_is_one_that_kubernetes_knows(chart: Rendered) -> None:
    assert len(chart.manifests) >= 4
    for manifest, error in chart.manifests:
        if manifest["kind"] in FOREIGN:
            assert "no kind" in error
        else:
            assert error == "", manifest


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_with_what_is_wrong(
    name: str, charts: dict[str, Rendered]
) -> None:
    assert WRONG[name][1] in charts[name].error
    assert charts[name].manifests == []


def test_a_gate_takes_the_settings(chart: Rendered, tmp_path: Path) -> None:
    """Start with the settings; paths of secrets and state are in a folder of this test."""
    authority = trustme.CA()
    certificate = authority.issue_cert("kafka.example.com")
    secrets = tmp_path / "secrets" / "tls"
    secrets.mkdir(parents=True)
    authority.cert_pem.write_to_path(secrets / "ca.crt")
    certificate.cert_chain_pems[0].write_to_path(secrets / "tls.crt")
    certificate.private_key_pem.write_to_path(secrets / "tls.key")
    (secrets / "tls.key").chmod(0o440)
    mounts = {one["mountPath"]: one["name"] for one in pod(chart)["containers"][0]["volumeMounts"]}
    text = chart.one("ConfigMap")["data"]["gate.yaml"]
    named = re.findall(r"/etc/batchval-secrets/\w+", text)
    assert all(path in mounts for path in named)
    text = text.replace("/etc/batchval-secrets", str(tmp_path / "secrets")).replace(
        "/var/lib/batchval", str(tmp_path)
    )
    path = tmp_path / "gate.yaml"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATE_PASSWORD", "a-password")
        draft = draft_of(path, None, {})
        check_files(draft, path)
    assert draft.faults == []
    assert draft.settings is not None


def test_the_service_has_the_ports_at_which_the_gate_listens(chart: Rendered) -> None:
    (service,) = [
        manifest
        for manifest, _ in chart.manifests
        if manifest["kind"] == "Service" and "component" not in str(manifest)
    ]
    ports = {port["port"] for port in service["spec"]["ports"]}
    ids = chart.values.get("brokerIds", [0, 1, 2])
    for listener in settings(chart)["listeners"]:
        bootstrap = int(listener["address"].rpartition(":")[2])
        first = listener.get("first_broker_port", bootstrap + 1)
        brokers = set() if "sni" in listener else {first + node for node in ids}
        expected = {bootstrap, *brokers}
        assert expected <= ports
        ports -= expected
    assert ports == set()
    container = {port["name"] for port in pod(chart)["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == container - {"metrics"}


def test_it_runs_without_privileges(chart: Rendered) -> None:
    spec = pod(chart)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_the_kubelet_waits_for_the_drain(chart: Rendered) -> None:
    limits = Limits.model_validate(settings(chart)["limits"])
    wait_ms = limits.drain_timeout_ms + getattr(limits, "stop_delay_ms", 0)
    assert pod(chart)["terminationGracePeriodSeconds"] * 1000 >= wait_ms + 10_000


def test_the_memory_suffices_for_what_the_gate_holds(chart: Rendered) -> None:
    memory = size(pod(chart)["containers"][0]["resources"]["limits"]["memory"])
    assert memory >= 2 * settings(chart)["limits"]["max_bytes_held"] + (256 << 20)


def test_the_chart_observes_unless_its_values_enforce(charts: dict[str, Rendered]) -> None:
    found = {name: settings(charts[name])["mode"] for name in NAMES}
    assert found == dict.fromkeys(NAMES, "observe") | {"everything": "enforce"}


def test_what_is_optional_comes_when_it_is_asked_for(charts: dict[str, Rendered]) -> None:
    plain = [
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
        "Service",
        "ServiceAccount",
    ]
    assert charts["least"].kinds() == plain
    more = ["HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor", "StatefulSet"]
    assert set(more) <= set(charts["everything"].kinds())
    assert charts["observe"].kinds() == ["ConfigMap", "Service", "Service", "StatefulSet"]


def test_a_change_of_the_settings_changes_the_pods_where_that_is_asked_for(
    charts: dict[str, Rendered],
) -> None:
    def checksum(chart: Rendered) -> str | None:
        kind = "StatefulSet" if "StatefulSet" in chart.kinds() else "Deployment"
        found: dict[str, str] = chart.one(kind)["spec"]["template"]["metadata"].get(
            "annotations", {}
        )
        return found.get("checksum/settings")

    found = {name: checksum(charts[name]) for name in NAMES}
    assert {name for name, sum_ in found.items() if sum_ is None} == {"least", "observe"}
    assert found["everything"] != found["sni"]


def test_the_monitor_gives_the_job_that_the_alerts_expect(charts: dict[str, Rendered]) -> None:
    chart = charts["everything"]
    monitor, service = chart.one("ServiceMonitor"), chart.one("Service", "-metrics")
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "batchval-gate"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()


def test_the_chart_has_the_version_of_the_package() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"] == __version__


def documented() -> Iterator[str]:
    yield from re.findall(r"^\| `([\w.]+)`", (CHART / "README.md").read_text("utf-8"), re.MULTILINE)


def test_the_readme_has_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert set(documented()) == set(values)
    assert set(values) == set(schema["properties"]) - {"global"}
