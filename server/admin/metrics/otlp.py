"""Metrics by OTLP: each sample, as /metrics shows it, is sent to a collector of OpenTelemetry.

Names, labels and values are those of /metrics. A thread of its own sends them: a collector that
does not answer costs samples, of which the newest is kept, and nothing else. The libraries of the
extra `amperage[otel]` are imported when an export is made; they read the variables OTEL_… of the
environment, such as OTEL_EXPORTER_OTLP_HEADERS.

Source: OpenTelemetry Protocol 1.9; OpenTelemetry, Environment Variable Specification.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from config_schema.redaction import masked, without_userinfo
from server.admin.metrics.exposition import MetricFamily
from server.admin.metrics.pages import families_of

if TYPE_CHECKING:
    from server.engine.span_queue import SpanQueue
    from server.statistics.histograms import Distribution
    from server.statistics.sample import StatisticsSnapshot
    from server.statistics.statistics_thread import StatisticsThread
    from server.util.log_protocol import ServerLog

METRICS_PATH: Final = "/v1/metrics"
"""The path of metrics below the endpoint of a collector."""

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
_CLOSE_TIMEOUT_S: Final = 5.0
_NO_VALUE: Final[Any] = None
"""For fields that are optional in the protocol, but not in the types of the SDK."""


class OtlpExport:
    """Sends each sample to a collector.

    Args:
        endpoint: the URL of the collector, without the path of metrics.
        attributes: attributes of the resource that the metrics are about.
        distributions: of durations and sizes; read from any thread.
        log: gets an entry when the collector cannot be reached, and when it can be again.
        spans: counts the spans of sampled messages; None if none are made.

    Raises:
        ModuleNotFoundError: the libraries are not installed.
    """

    def __init__(
        self,
        endpoint: str,
        attributes: Mapping[str, str],
        distributions: Sequence[Distribution],
        log: ServerLog,
        spans: SpanQueue | None = None,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._resource: Final = make_resource(attributes)
        self._distributions: Final = distributions
        self._spans: Final = spans
        self._log: Final = log
        self._started_ns: Final = time.time_ns()
        self._exporter: Final = OTLPMetricExporter(endpoint.rstrip("/") + METRICS_PATH)
        self._shown_endpoint: Final = without_userinfo(endpoint)
        self._last_error: Final = LastError()
        self._condition: Final = threading.Condition()
        self._pending: StatisticsSnapshot | None = None
        self._is_closed = False
        self._has_failed = False
        self._stop_watching: Callable[[], None] = lambda: None
        self._thread: Final = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self, statistics: StatisticsThread) -> None:
        """Send each sample from now on."""
        self._thread.start()
        self._stop_watching = statistics.add_watcher(self._add_snapshot)

    def close(self) -> None:
        """Send no more samples; give up one that is being sent."""
        self._stop_watching()
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        self._exporter.shutdown()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._last_error.close()

    def _add_snapshot(self, snapshot: StatisticsSnapshot) -> None:
        """Replace the sample that waits; called on the thread of statistics."""
        with self._condition:
            self._pending = snapshot
            self._condition.notify()

    def _run(self) -> None:
        while (snapshot := self._next_snapshot()) is not None:
            self._note_result(self._export(snapshot))

    def _export(self, snapshot: StatisticsSnapshot) -> str | None:
        """Send a sample; return the cause if that fails."""
        try:
            families = families_of(snapshot, self._distributions, self._spans)
            result = self._exporter.export(self._metrics_data(families))
        except Exception as error:  # the next sample is tried again, whatever this one's error
            return f"{type(error).__name__}: {error}"
        return None if result.name == "SUCCESS" else self._last_error.text

    def _next_snapshot(self) -> StatisticsSnapshot | None:
        """Wait for a sample and return it; None once this is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._pending is not None)
            snapshot, self._pending = self._pending, None
            return None if self._is_closed else snapshot

    def _note_result(self, failure: str | None) -> None:
        """Log the first failure after a success, and the first success after a failure."""
        has_failed = failure is not None
        if has_failed != self._has_failed and not self._is_closed:
            self._has_failed = has_failed
            if failure is not None:
                reason = masked(failure)
                self._log.emit("19-0013", endpoint=self._shown_endpoint, reason=reason)
            else:
                self._log.emit("19-0014", endpoint=self._shown_endpoint)

    def _metrics_data(self, families: Iterable[MetricFamily]) -> Any:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        now_ns = time.time_ns()
        metrics = [self._metric(family, now_ns) for family in families if family.samples]
        scope = ScopeMetrics(InstrumentationScope("amperage"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: MetricFamily, now_ns: int) -> Any:
        from opentelemetry.sdk.metrics.export import (
            AggregationTemporality,
            Gauge,
            Histogram,
            Metric,
            Sum,
        )

        data: Any
        if family.type == "histogram":
            points = self._histogram_points(family, now_ns)
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
        elif family.type == "counter":
            points = self._number_points(family, now_ns)
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(self._number_points(family, now_ns))
        return Metric(family.name, family.description, _UNITS.get(family.unit, ""), data)

    def _number_points(self, family: MetricFamily, now_ns: int) -> list[Any]:
        from opentelemetry.sdk.metrics.export import NumberDataPoint

        return [
            NumberDataPoint(_attributes(sample.labels), self._started_ns, now_ns, sample.value)
            for sample in family.samples
        ]

    def _histogram_points(self, family: MetricFamily, now_ns: int) -> list[Any]:
        """Return the histograms of a family, whose counts are cumulative over the buckets."""
        from opentelemetry.sdk.metrics.export import HistogramDataPoint

        points, bounds, counts, count = list[Any](), list[float](), list[int](), 0
        for suffix, label_text, value in family.samples:
            attributes = _attributes(label_text)
            if suffix == "_bucket":
                bounds.append(float(attributes.pop("le")))
                counts.append(int(value) - sum(counts))
            elif suffix == "_count":
                count = int(value)
            else:
                point = HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=self._started_ns,
                    time_unix_nano=now_ns,
                    count=count,
                    sum=value,
                    bucket_counts=counts,
                    explicit_bounds=bounds[:-1],  # the last is infinite
                    min=_NO_VALUE,
                    max=_NO_VALUE,
                )
                points.append(point)
                bounds, counts = [], []
        return points


class LastError(logging.Handler):
    """Keeps the last error that the libraries of OpenTelemetry log, instead of printing it.

    Attributes:
        text: the error.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._logger: Final = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        self.text = record.getMessage()

    def close(self) -> None:
        """Keep no more errors: they are logged as before."""
        self._logger.removeHandler(self)
        others = (handler for handler in self._logger.handlers if isinstance(handler, LastError))
        self._logger.propagate = next(others, None) is None
        super().close()


def make_resource(attributes: Mapping[str, str]) -> Any:
    """Return the resource of an instance: its attributes and those of OTEL_RESOURCE_ATTRIBUTES.

    The latter win, and so does OTEL_SERVICE_NAME.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource({"service.name": "amperage", **attributes})
    return ours.merge(OTELResourceDetector().detect())


def _attributes(label_text: str) -> dict[str, str]:
    """Return labels that were written as text."""
    return {
        name: _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
        for name, value in _LABEL.findall(label_text)
    }
