"""Spans of sampled messages by OTLP, sent to a collector of OpenTelemetry.

A thread of its own sends them. While the collector does not answer, spans wait in a bounded queue,
and what does not fit is dropped and counted: the engine's thread never waits. The libraries of the
extra `amperage[otel]` are imported when an export is made.

Source: OpenTelemetry Protocol 1.9; OpenTelemetry, Semantic Conventions for Messaging Spans.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from config_schema.redaction import masked, without_userinfo
from server.admin.metrics.otlp import LastError, make_resource

if TYPE_CHECKING:
    from server.engine.span_queue import MessageSpan, SpanQueue
    from server.util.log_protocol import ServerLog

TRACES_PATH: Final = "/v1/traces"
"""The path of traces below the endpoint of a collector."""

_INTERVAL_S: Final = 0.5
_BATCH_SIZE: Final = 512
_CLOSE_TIMEOUT_S: Final = 2.0
_LOG_INTERVAL_S: Final = 60.0
_OPERATION_TYPES: Final[Mapping[str, str]] = {
    "publish": "receive",
    "replicate": "receive",
    "deliver": "send",
    "ack": "settle",
}
"""The types that the semantic conventions know, of the operations that have one."""
_KINDS: Final[Mapping[str, str]] = {
    "publish": "CONSUMER",
    "replicate": "CONSUMER",
    "deliver": "PRODUCER",
    "ack": "SERVER",
    "log": "INTERNAL",
}


class OtlpSpanExport:
    """Sends spans to a collector.

    Args:
        endpoint: the URL of the collector, without the path of traces.
        attributes: attributes of the resource that the spans are about.
        queue: has the spans.
        log: gets an entry when the collector cannot be reached, when it can be again, and when
            spans have been dropped, at most once a minute.

    Raises:
        ModuleNotFoundError: the libraries are not installed.
    """

    def __init__(
        self, endpoint: str, attributes: Mapping[str, str], queue: SpanQueue, log: ServerLog
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self._resource: Final = make_resource(attributes)
        self._queue: Final = queue
        self._log: Final = log
        self._exporter: Final[Any] = OTLPSpanExporter(endpoint.rstrip("/") + TRACES_PATH)
        self._shown_endpoint: Final = without_userinfo(endpoint)
        self._last_error: Final = LastError()
        self._closed: Final = threading.Event()
        self._has_failed = False
        self._logged_dropped = 0
        self._may_log_from_s = 0.0
        self._thread: Final = threading.Thread(target=self._run, name="otlp-spans", daemon=True)

    def start(self) -> None:
        """Send spans from now on."""
        self._thread.start()

    def close(self) -> None:
        """Send the spans that wait, unless the collector does not answer, and no more."""
        self._closed.set()
        if self._has_failed:
            self._exporter.shutdown()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._exporter.shutdown()
        self._last_error.close()

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self._export_all()
        if not self._has_failed:
            self._export_all()

    def _export_all(self) -> None:
        """Send all spans that wait; after a failure, the next ones wait for the next interval."""
        while spans := self._queue.take_batch(_BATCH_SIZE):
            failure = self._export(spans)
            if failure is None:
                self._queue.exported += len(spans)
            else:
                self._queue.lost += len(spans)
            self._note_result(failure)
            if failure is not None:
                break
        self._log_dropped()

    def _export(self, spans: Sequence[MessageSpan]) -> str | None:
        """Send spans; return the cause if that fails."""
        try:
            result = self._exporter.export([self._readable_span(span) for span in spans])
        except Exception as error:  # the next spans are tried again, whatever the error of these
            return f"{type(error).__name__}: {error}"
        return None if result.name == "SUCCESS" else self._last_error.text

    def _note_result(self, failure: str | None) -> None:
        """Log the first failure after a success, and the first success after a failure."""
        has_failed = failure is not None
        if has_failed != self._has_failed and not self._closed.is_set():
            self._has_failed = has_failed
            if failure is not None:
                self._log.emit("19-0017", endpoint=self._shown_endpoint, reason=masked(failure))
            else:
                self._log.emit("19-0018", endpoint=self._shown_endpoint)

    def _log_dropped(self) -> None:
        count, now = self._queue.dropped - self._logged_dropped, time.monotonic()
        if count and now >= self._may_log_from_s:
            self._logged_dropped += count
            self._may_log_from_s = now + _LOG_INTERVAL_S
            self._log.emit("19-0019", count=count)

    def _readable_span(self, span: MessageSpan) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        operation, topic = span.operation, _encodable(span.topic)
        attributes = {
            "messaging.system": "amps",
            "messaging.destination.name": topic,
            "messaging.operation.name": operation,
            **{
                name: _encodable(value) if isinstance(value, str) else value
                for name, value in span.attributes.items()
            },
        }
        if operation in _OPERATION_TYPES:
            attributes["messaging.operation.type"] = _OPERATION_TYPES[operation]
        return ReadableSpan(
            f"{operation} {topic}",
            SpanContext(span.trace_id, _new_span_id(), is_remote=False, trace_flags=flags),
            SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=flags),
            self._resource,
            attributes,
            kind=SpanKind[_KINDS[operation]],
            instrumentation_scope=InstrumentationScope("amperage"),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )


def _encodable(text: str) -> str:
    """Return a text without surrogates, which stand for bytes that are not UTF-8."""
    return text.encode(errors="replace").decode()


def _new_span_id() -> int:
    return random.getrandbits(64) or 1
