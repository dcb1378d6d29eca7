"""Metrics by OpenTelemetry: what a collector gets, and what becomes of one that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.config import Otlp
from batchval.proxy.settings.loading import ConfigError, drafted, settings_from, shown
from batchval.proxy.watch.otlp_export import OtlpExport
from batchval.proxy.watch.request_latency import BOUNDS_S
from tests.support.network import closed_port, until
from tests.support.proxy import ScriptedBroker, other_frame
from tests.unit.proxy_settings.reloaded import ReloadedGate


class Collector(ThreadingHTTPServer):
    """A collector that takes OTLP over HTTP, or answers with ``status``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = []
        self.status = 200
        self.came = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportMetricsServiceRequest.FromString(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers, request))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.came.set()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def values(otlp: dict[str, Any], upstream: str = "127.0.0.1:1") -> dict[str, Any]:
    listener = {"address": "127.0.0.1:0", "first_broker_port": 0}
    metrics = {"address": None, "otlp": {"interval_ms": 1_000, **otlp}}
    return {"listeners": [listener], "upstream": {"bootstrap": upstream}, "metrics": metrics}


async def test_a_collector_gets_all_metrics(collector: Collector) -> None:
    with ScriptedBroker() as broker:
        otlp = {"endpoint": collector.url, "headers": {"authorization": "Bearer x"}}
        gate = Gate(settings_from(values(otlp, broker.address)), version="1.2")
        await gate.start()
        reader, writer = await asyncio.open_connection(*gate.addresses["default"])
        for n in range(3):
            writer.write(other_frame(n))
            await reader.readexactly(8)
        await until(collector.came.is_set)
        writer.close()
        await gate.stop(0.5)
    path, headers, _ = collector.requests[0]
    assert (path, headers["authorization"]) == ("/v1/metrics", "Bearer x")
    assert headers["content-type"] == "application/x-protobuf"
    assert len(collector.requests) >= 2  # the last one at the end
    (resource,) = collector.requests[-1][2].resource_metrics
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (names["service.name"], names["service.version"]) == ("batchval-gate", "1.2")
    assert names["service.instance.id"]
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    requests = metrics["batchval_gate_requests"].sum
    assert (requests.is_monotonic, requests.aggregation_temporality) == (True, 2)  # cumulative
    assert [point.as_int for point in requests.data_points] == [3]
    assert 0 < requests.data_points[0].start_time_unix_nano < requests.data_points[0].time_unix_nano
    assert len(metrics["batchval_gate_ready"].gauge.data_points) == 1
    (point,) = metrics["batchval_gate_request_duration_seconds"].histogram.data_points
    labels = {one.key: one.value.string_value for one in point.attributes}
    assert labels == {"api": "InitProducerId", "listener": "default", "node": "bootstrap"}
    assert (point.count, sum(point.bucket_counts), len(point.bucket_counts)) == (
        3,
        3,
        len(BOUNDS_S) + 1,
    )
    assert tuple(point.explicit_bounds) == BOUNDS_S
    assert 0 < point.sum < 60
    assert not point.HasField("min")


async def test_failures_are_counted_and_logged_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 400
    gate = Gate(settings_from(values({"endpoint": collector.url})))
    await gate.start()
    otlp = gate.otlp
    assert otlp is not None
    await until(lambda: otlp.failures_total >= 2)
    collector.status = 200
    await until(lambda: otlp.exports_total)
    await gate.stop(0)
    own = [one.getMessage() for one in caplog.records if one.name == "batchval.proxy"]
    lines = [line for line in own if line.startswith("metrics ")]
    assert len(lines) == 2, lines
    assert lines[0].startswith(f"metrics could not be sent to {collector.url}/v1/metrics: ")
    assert "400" in lines[0]
    assert lines[1] == f"metrics are sent to {collector.url}/v1/metrics again"
    assert "batchval_gate_otlp_failures_total" in gate.metrics.page()().decode()


async def test_values_that_cannot_be_taken_are_a_failure_and_later_ones_are_sent(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [RuntimeError("a worker is gone"), [], ValueError()]

    async def take() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return lambda: answer

    export = OtlpExport(Otlp(endpoint=collector.url), take)
    export._interval_s = 0.01
    export.start()
    await until(lambda: export.exports_total == 1)
    await until(lambda: not answers)
    export._interval_s = 60
    answers[:] = [ValueError()]
    await export.stop()  # raises nothing, although the values are missing
    assert not export._thread.is_alive()
    lines = [one.getMessage() for one in caplog.records if one.name == "batchval.proxy"]
    assert lines[0].endswith("/v1/metrics: a worker is gone")
    assert lines[-1].endswith("/v1/metrics: ValueError")


async def test_a_collector_that_does_not_answer_holds_nothing_up() -> None:
    # Neither the loop nor the end of the gate.
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        gate = Gate(settings_from(values({"endpoint": f"http://127.0.0.1:{port}"})))
        await gate.start()
        await asyncio.sleep(1.2)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await gate.stop(0)
        assert loop.time() - begun < 15
        assert gate.otlp is not None
        assert gate.otlp.exports_total == 0


async def test_without_a_collector_the_gate_ends() -> None:
    gate = Gate(settings_from(values({"endpoint": f"http://127.0.0.1:{closed_port()}"})))
    await gate.start()
    await gate.stop(0)
    assert gate.otlp is not None
    assert gate.otlp.exports_total == 0


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("https://collector", "https://collector:443/v1/metrics"),
        ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
        (
            "https://otlp.example.com/tenant/v1/metrics",
            "https://otlp.example.com:443/tenant/v1/metrics",
        ),
    ],
)
def test_the_endpoint(endpoint: str, url: str) -> None:
    assert Otlp(endpoint=endpoint).url == url


@pytest.mark.parametrize(
    ("otlp", "text"),
    [
        ({}, "metrics.otlp.endpoint: "),
        (
            {"endpoint": "collector:4318"},
            "metrics.otlp.endpoint: expected http://HOST:PORT or https://HOST:PORT",
        ),
        ({"endpoint": "grpc://collector"}, "metrics.otlp.endpoint: expected http://HOST:PORT"),
        (
            {"endpoint": "http://a:b@c"},
            "metrics.otlp.endpoint: it holds credentials: set the header authorization",
        ),
        ({"endpoint": "http://a", "interval_ms": 10}, "metrics.otlp.interval_ms: "),
        (
            {"endpoint": "http://a", "headers": {"a b": "x"}},
            "metrics.otlp.headers: 'a b' is not the name of a header",
        ),
        ({"endpoint": "http://a", "headers": {"a": ""}}, "metrics.otlp.headers.a: is empty"),
        ({"endpoint": "http://a", "protocol": "grpc"}, "metrics.otlp.protocol"),
    ],
)
def test_wrong_settings(otlp: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        drafted(values(otlp)).finished()
    assert any(text in line for line in caught.value.problems), caught.value.problems


def test_headers_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_from(
        values({"endpoint": "http://a", "headers": {"authorization": "Bearer hunter2"}})
    )
    assert "hunter2" not in shown(settings) + repr(settings)
    missing = values(
        {"endpoint": "http://a", "headers": {"authorization": {"env": "NO_SUCH_TOKEN"}}}
    )
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_TOKEN"):
        Gate(settings_from(missing))


async def test_a_reload_takes_the_token_that_a_file_holds_now(
    collector: Collector, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    token.chmod(0o600)
    otlp = {
        "endpoint": collector.url,
        "interval_ms": 1_000,
        "headers": {"authorization": {"file": str(token)}},
    }
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, metrics={"address": None, "otlp": otlp}) as one:
            token.unlink()
            os.mkfifo(token, 0o600)
            assert await one.reloader.reload() == "refused"
            token.unlink()
            token.write_text("second")
            token.chmod(0o600)
            assert await one.reloader.reload() == "applied"
            assert await one.reloader.reload() == "unchanged"
        _, headers, _ = collector.requests[-1]
        assert headers["authorization"] == "second"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.delitem(sys.modules, "batchval.proxy.watch.otlp_export", raising=False)
    with pytest.raises(ConfigError, match=r"opentelemetry.sdk.*batchval\[otel\]"):
        Gate(settings_from(values({"endpoint": "http://a"})))
