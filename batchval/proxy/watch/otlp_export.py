"""Metrics for OpenTelemetry: the families of /metrics, sent to a collector by OTLP over HTTP.

    event loop   families, every ``interval_ms`` ──▶ at most one wait
    own thread   data points ──▶ protobuf ──▶ POST

Names are those of /metrics without ``_total``; all values are cumulative since the gate's start.
The resource has ``service.name``, ``service.version`` and ``service.instance.id``, and what
OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME set.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from batchval.optional import require

require(__name__)

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: E402
from opentelemetry.sdk.metrics.export import (  # noqa: E402
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource  # noqa: E402
from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: E402

from batchval.proxy.settings.config import Otlp  # noqa: E402
from batchval.proxy.watch.metrics import PREFIX, Family  # noqa: E402
from batchval.proxy.watch.request_latency import BOUNDS_S  # noqa: E402

__all__ = ["OtlpExport"]

log = logging.getLogger("batchval.proxy")
#: The library's loggers: their lines become the reason in a line of the gate's.
_LIBRARY: Final = "opentelemetry"

#: Seconds for one export with its retries, unless the interval is shorter.
MAX_EXPORT_S: Final = 10.0
#: Seconds that the end of the gate waits for the last export.
STOP_S: Final = 2.0
#: Data points of one request.
BATCH: Final = 5_000

#: Takes the values on the loop; what it returns gives the families, in any thread.
Take = Callable[[], Awaitable[Callable[[], Iterable[Family]]]]
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpExport:
    """An exporter of metrics to one collector. ``start`` and ``stop`` it on a running loop.

    ``exports_total``   requests that the collector has taken
    ``failures_total``  all others
    """

    def __init__(self, settings: Otlp, take: Take, *, version: str = "", mode: str = "") -> None:
        self.exports_total = self.failures_total = 0
        self._settings = settings
        self._interval_s = settings.interval_ms / 1000
        self._take = take
        self._url = settings.url
        self._exporter = self.renewed()
        names = {
            "service.name": "batchval-gate",
            "service.version": version,
            "batchval.gate.mode": mode,
        }
        self._resource = Resource.create({**names, "service.instance.id": str(uuid.uuid4())})
        self._start_ns = time.time_ns()
        self._waiting: queue.Queue[Callable[[], Iterable[Family]] | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._reason = _LastLine()
        self._fails = False

    def renewed(self) -> OTLPMetricExporter:
        """Return an exporter with the headers of now, for any thread. Raises ValueError."""
        return OTLPMetricExporter(
            endpoint=self._url,
            headers={name: secret.reveal() for name, secret in self._settings.headers.items()},
            certificate_file=None if self._settings.ca is None else str(self._settings.ca),
            timeout=min(self._interval_s, MAX_EXPORT_S),
            max_export_batch_size=BATCH,
        )

    def use(self, exporter: OTLPMetricExporter) -> None:
        """Send by this exporter from the next request on."""
        self._exporter = exporter

    def start(self) -> None:
        """Export from now on."""
        library = logging.getLogger(_LIBRARY)
        library.addHandler(self._reason)
        library.propagate = False
        self._thread.start()
        self._task = asyncio.get_running_loop().create_task(self._tick())

    async def stop(self) -> None:
        """Export once more, and end."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._offer()
        until = time.monotonic() + STOP_S
        while self._waiting.full() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        while not self._ended.is_set() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        # an export that is under way makes no further attempt
        await asyncio.to_thread(self._exporter.shutdown)
        logging.getLogger(_LIBRARY).removeHandler(self._reason)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._offer()

    async def _offer(self) -> None:
        """Take the values and hand them to the thread. A failure is counted and logged."""
        try:
            self._waiting.put_nowait(await self._take())
        except queue.Full:
            self._failed("the export before it has not ended")
        except Exception as error:  # of whatever makes the values
            self._failed(str(error) or type(error).__name__)

    # ---- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while (families := self._waiting.get()) is not None:
            self._reason.text = ""
            try:
                result = self._exporter.export(self._data(families()))
            except Exception as error:  # of the library, or of what it calls
                self._failed(str(error) or type(error).__name__)
            else:
                if result is MetricExportResult.SUCCESS:
                    self._succeeded()
                else:
                    self._failed(self._reason.text or "the collector did not take them")
        self._ended.set()

    def _succeeded(self) -> None:
        self.exports_total += 1
        if self._fails:
            self._fails = False
            log.info("metrics are sent to %s again", self._url)

    def _failed(self, why: str) -> None:
        """Count a failure; log the first of several in a row."""
        self.failures_total += 1
        if not self._fails:
            self._fails = True
            log.warning("metrics could not be sent to %s: %s", self._url, why)

    def _data(self, families: Iterable[Family]) -> MetricsData:
        times = self._start_ns, time.time_ns()
        metrics = [_metric(family, *times) for family in families]
        scope = ScopeMetrics(
            InstrumentationScope("batchval.proxy"), [one for one in metrics if one is not None], ""
        )
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


class _LastLine(logging.Handler):
    """A logging handler that keeps the last line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.text = record.getMessage()


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric | None:
    """Return a family as the SDK has it; None where it has no values."""
    name = f"{PREFIX}_{family.name}"
    if family.kind == "histogram":
        points = list(_histograms(family, start_ns, now_ns))
        return Metric(name, family.text, "s", Histogram(points, _CUMULATIVE)) if points else None
    numbers = list(_numbers(family, start_ns, now_ns))
    data = (
        Gauge(numbers) if family.kind == "gauge" else Sum(numbers, _CUMULATIVE, is_monotonic=True)
    )
    return Metric(name, family.text, "", data) if numbers else None


def _numbers(family: Family, start_ns: int, now_ns: int) -> Iterator[NumberDataPoint]:
    since_ns = 0 if family.kind == "gauge" else start_ns
    for labels, value in family.samples:
        yield NumberDataPoint(_attributes(family, labels), since_ns, now_ns, value)


def _histograms(family: Family, start_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    unknown = cast("float", None)  # the least and the largest value are optional in OTLP
    for labels, (counts, total) in family.samples:
        attributes = _attributes(family, labels)
        yield HistogramDataPoint(
            attributes,
            start_ns,
            now_ns,
            sum(counts),
            total,
            list(counts),
            BOUNDS_S,
            unknown,
            unknown,
        )


def _attributes(family: Family, labels: Sequence[str]) -> Mapping[str, Any]:
    return dict(zip(family.labels, labels, strict=True))
