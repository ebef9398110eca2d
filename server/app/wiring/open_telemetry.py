"""Exports the metrics and spans of an instance by OTLP, if its configuration says so.

The libraries come with the extra `amperage[otel]`. They are imported when a configuration has
`Admin/OpenTelemetry`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from config_schema.version import VERSION
from server.engine.message_tracer import MessageTracer
from server.engine.span_queue import SpanQueue
from server.statistics.histograms import distributions

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec, OpenTelemetrySpec
    from server.admin.metrics.otlp import OtlpExport
    from server.engine.engine import Engine
    from server.log.event_log import EventLog

_LIBRARY: Final = "opentelemetry"
_INSTALL: Final = "pip install 'amperage[otel]'"


class MissingLibraryError(Exception):
    """The libraries are not installed. The text says where they are configured."""


def check_open_telemetry_libraries(spec: InstanceSpec, problems: Problems) -> None:
    """Report an export without its libraries."""
    found = None if spec.admin is None else spec.admin.open_telemetry
    if found is not None and find_spec(_LIBRARY) is None:
        problems.error(
            found.location,
            "OpenTelemetry",
            f"needs {_LIBRARY}, which is not installed",
            f"it comes with {_INSTALL}",
        )


def make_export(
    spec: InstanceSpec, open_telemetry: OpenTelemetrySpec, engine: Engine, log: EventLog
) -> OtlpExport:
    """Return the export of an instance's metrics.

    Raises:
        MissingLibraryError: the libraries are not installed.
    """
    _require_library(open_telemetry)
    from server.admin.metrics.otlp import OtlpExport

    tracer = engine.message_tracer
    return OtlpExport(
        open_telemetry.endpoint,
        _resource_attributes(spec),
        distributions(engine),
        log,
        None if tracer is None else tracer.queue,
    )


def start_traces(spec: InstanceSpec, engine: Engine, log: EventLog, opened: AsyncExitStack) -> None:
    """Make and export spans of sampled messages, if the configuration says so.

    Args:
        spec: the instance.
        engine: gets the tracer, before it has topics and connections.
        log: gets entries about the export.
        opened: gets the callback that ends the export.

    Raises:
        MissingLibraryError: the libraries are not installed.
    """
    open_telemetry = None if spec.admin is None else spec.admin.open_telemetry
    if open_telemetry is None or not open_telemetry.traces:
        return
    _require_library(open_telemetry)
    from server.admin.metrics.otlp_spans import OtlpSpanExport

    queue = SpanQueue()
    export = OtlpSpanExport(open_telemetry.endpoint, _resource_attributes(spec), queue, log)
    engine.message_tracer = MessageTracer(engine, queue)
    export.start()
    opened.callback(export.close)


def _require_library(open_telemetry: OpenTelemetrySpec) -> None:
    if find_spec(_LIBRARY) is None:
        raise MissingLibraryError(
            f"{open_telemetry.location}: OpenTelemetry needs {_LIBRARY}, which comes with"
            f" {_INSTALL}"
        )


def _resource_attributes(spec: InstanceSpec) -> dict[str, str]:
    return {"service.instance.id": spec.name, "service.version": VERSION}
