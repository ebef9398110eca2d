"""Metrics by OTLP, as a collector gets them that speaks HTTP and protobuf."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from config_schema.problems import Problems
from server.admin.metrics.otlp import LastError, OtlpExport
from server.app.wiring import open_telemetry
from server.statistics.histograms import Distribution
from server.util.histogram import Histogram
from tests.admin.otlp_collector import OtlpCollector, OtlpHandler, serving
from tests.admin.support import Admin, running_admin
from tests.admin.test_programs import ELEMENTS
from tests.config_schema.test_compile_spec import compile_text
from tests.engine.support import RecordingLog
from tests.statistics.support import kept, sample, take
from tests.support.server import free_port
from tests.support.waiting import wait_until


class Collector(OtlpCollector):
    """A collector that keeps the last request, decoded.

    Attributes:
        metrics: the metrics of the last request, by their names.
        resource: the attributes of the resource that they are about.
        headers: the headers of that request.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port, _Handler)
        self.metrics: dict[str, Any] = {}
        self.resource: dict[str, str] = {}
        self.headers: dict[str, str] = {}


class _Handler(OtlpHandler):
    server: Collector

    def collect(self, path: str, content: bytes) -> bytes:
        assert path == "/v1/metrics"
        [about] = ExportMetricsServiceRequest.FromString(content).resource_metrics
        [scope] = about.scope_metrics
        self.server.resource = {
            one.key: one.value.string_value for one in about.resource.attributes
        }
        self.server.headers = dict(self.headers)
        self.server.metrics = {one.name: one for one in scope.metrics}
        return ExportMetricsServiceResponse().SerializeToString()


def exporting(port: int) -> str:
    return f"<OpenTelemetry><Endpoint>http://127.0.0.1:{port}</Endpoint></OpenTelemetry>"


def value(found: Collector, name: str, **labels: str) -> float | None:
    """The value of a series; None if there is none."""
    metric = found.metrics.get(name)
    if metric is None:
        return None
    for point in getattr(metric, metric.WhichOneof("data")).data_points:
        if {one.key: one.value.string_value for one in point.attributes} == labels:
            return float(point.as_double or point.as_int)
    return None


def set_variables() -> None:
    """Set the variables of OpenTelemetry, in the process of a server."""
    os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = "x-tenant=orders"
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "deployment.environment.name=test"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Admin, Collector]]:
    port, directory = free_port(), tmp_path_factory.mktemp("otlp")
    with (
        serving(Collector(port)) as found,
        running_admin(
            directory, admin=exporting(port), elements=ELEMENTS, prepare=set_variables
        ) as admin,
    ):
        wait_until(lambda: found.metrics != {})
        yield admin, found


def test_a_collector_gets_every_metric(exported: tuple[Admin, Collector]) -> None:
    admin, found = exported
    shown = {
        family.name: family.type
        for family in read_text(admin.ask("/metrics").text)
        if family.name != "amperage_instance_info"
    }
    kinds = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
    exported_kinds = {name: metric.WhichOneof("data") for name, metric in found.metrics.items()}
    assert exported_kinds.pop("amperage_instance") == "gauge"
    assert {name: kinds[kind] for name, kind in shown.items()} == exported_kinds
    assert all(
        metric.sum.is_monotonic for metric in found.metrics.values() if metric.sum.data_points
    )
    units = {name: found.metrics[name].unit for name in found.metrics if name.endswith("_bytes")}
    assert set(units.values()) == {"By"}


def test_values_follow_what_was_done(exported: tuple[Admin, Collector]) -> None:
    admin, found = exported
    with admin.server.log_on("publisher") as peer:
        for number in range(5):
            peer.publish("orders", b'{"id":%d}' % number)
        peer.flush()
        labels = {"transport": "any-tcp"}
        wait_until(
            lambda: (value(found, "amperage_transport_received_messages", **labels) or 0) > 5
        )
        topic = {"topic": "orders", "message_type": "json"}
        wait_until(lambda: value(found, "amperage_sow_records", **topic) == 5)
    [turns] = found.metrics["amperage_turn_seconds"].histogram.data_points
    assert turns.count == sum(turns.bucket_counts) > 0
    assert len(turns.bucket_counts) == len(turns.explicit_bounds) + 1
    assert list(turns.explicit_bounds) == sorted(turns.explicit_bounds)
    assert turns.sum > 0


def test_the_resource_and_the_environment_say_where_they_are_from(
    exported: tuple[Admin, Collector],
) -> None:
    _, found = exported
    assert (
        found.resource.items()
        >= {
            "service.name": "amperage",
            "deployment.environment.name": "test",
        }.items()
    )
    assert found.resource["service.instance.id"]
    assert found.headers["x-tenant"] == "orders"


def test_a_collector_that_is_away_is_logged_once_and_tried_again(tmp_path: Path) -> None:
    port = free_port()
    with running_admin(tmp_path, admin=exporting(port)) as admin:
        wait_until(lambda: admin.server.logs("19-0013"))
        with serving(Collector(port)) as found:
            wait_until(lambda: found.metrics != {})
            wait_until(lambda: admin.server.logs("19-0014"))
        assert admin.server.log_file.read_text().count("19-0013") == 1


def test_a_sample_that_cannot_be_exported_is_logged_and_the_next_one_is_sent() -> None:
    log, port = RecordingLog(), free_port()
    unknown = [Distribution("size", "furlongs", "A size.", "", Histogram())]
    with serving(Collector(port)) as found, kept(":memory:") as statistics:
        export = OtlpExport(f"http://me:secret@127.0.0.1:{port}", {}, unknown, log)
        export.start(statistics)
        try:
            take(statistics, sample(1, {}))
            wait_until(lambda: log.entries != [])
            unknown.clear()
            take(statistics, sample(2, {}))
            wait_until(lambda: len(log.entries) == 2)
        finally:
            export.close()
        assert found.metrics
    shown = f"http://127.0.0.1:{port}"
    assert log.entries == [
        ("19-0013", {"endpoint": shown, "reason": "KeyError: 'furlongs'"}),
        ("19-0014", {"endpoint": shown}),
    ]


def test_errors_of_the_libraries_are_logged_as_before_once_the_last_export_is_closed() -> None:
    logger = logging.getLogger("opentelemetry")
    first, second = LastError(), LastError()
    logger.error("no %s", "answer")
    assert (first.text, second.text, logger.propagate) == ("no answer", "no answer", False)
    first.close()
    assert not logger.propagate
    second.close()
    assert logger.propagate
    logger.error("another")
    assert second.text == "no answer"


def test_a_missing_library_is_an_error_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = Problems()
    text = f"<AMPSConfig><Name>x</Name><Admin>{exporting(4318)}</Admin></AMPSConfig>"
    monkeypatch.setattr(open_telemetry, "find_spec", lambda _: None)
    open_telemetry.check_open_telemetry_libraries(compile_text(text, tmp_path), problems)
    [problem] = problems
    assert "needs opentelemetry, which is not installed" in str(problem)
    assert "amperage[otel]" in str(problem)
