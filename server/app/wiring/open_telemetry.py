"""Exports the metrics of an instance by OTLP, if its configuration says so.

The libraries come with the extra `amperage[otel]`. They are imported when a configuration has
`Admin/OpenTelemetry`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from config_schema.version import VERSION
from server.statistics.histograms import distributions

if TYPE_CHECKING:
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
    if find_spec(_LIBRARY) is None:
        raise MissingLibraryError(
            f"{open_telemetry.location}: OpenTelemetry needs {_LIBRARY}, which comes with"
            f" {_INSTALL}"
        )
    from server.admin.metrics.otlp import OtlpExport

    attributes = {"service.instance.id": spec.name, "service.version": VERSION}
    return OtlpExport(open_telemetry.endpoint, attributes, distributions(engine), log)
