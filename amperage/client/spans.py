"""Spans of OpenTelemetry for publishing and for handling messages, and the context between them.

    with publish_span("orders") as correlation_id:
        client.publish("orders", body, correlation_id=correlation_id)

    for message in client.subscribe("orders"):
        with message_span(message):
            handle(message)

The context travels in the correlation id, which the server passes on to subscribers, logs, and
replicates: as a W3C traceparent without its dashes, since a correlation id has characters of base64
only. It takes `amperage[otel]`; an application that does not import this module does not load
OpenTelemetry. Spans are recorded by the tracer provider that the application has set.

Source: W3C Trace Context, 3.2; OpenTelemetry, Semantic Conventions for Messaging Spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
)

from amperage.client.message import Message
from amperage.client.version import installed_version

_CONTEXT: Final = re.compile(r"00([0-9a-f]{32})([0-9a-f]{16})([0-9a-f]{2})")
_SYSTEM: Final = "amps"


@contextmanager
def publish_span(topic: str, correlation_id: str = "") -> Iterator[str | None]:
    """Start a span for a publish, as a child of the current span, and make it current.

    An exception is recorded and ends the span with an error.

    Args:
        topic: the topic.
        correlation_id: the correlation id of the message; it follows the context.

    Yields:
        The correlation id to publish with: the context of the span and the given one. None if
        there is neither, as when no tracer provider is set.
    """
    with _span(f"send {topic}", SpanKind.PRODUCER, topic, "send") as span:
        yield encode_context(span.get_span_context()) + correlation_id or None


@contextmanager
def message_span(message: Message) -> Iterator[Span]:
    """Start a span for the handling of a message, and make it current.

    It is a child of the span that the message was published in; of the current span if the message
    has no context. An exception is recorded and ends the span with an error.

    Yields:
        The span.
    """
    topic = message.topic or ""
    published_in = decode_context(message.correlation_id)
    parent = None if published_in is None else NonRecordingSpan(published_in)
    with _span(f"process {topic}", SpanKind.CONSUMER, topic, "process", parent) as span:
        if message.bookmark:
            span.set_attribute("messaging.message.id", message.bookmark)
        yield span


def encode_context(context: SpanContext) -> str:
    """Return the context of a span as the beginning of a correlation id; empty if it is invalid."""
    if not context.is_valid:
        return ""
    return f"00{context.trace_id:032x}{context.span_id:016x}{context.trace_flags:02x}"


def decode_context(correlation_id: str | None) -> SpanContext | None:
    """Return the context at the beginning of a correlation id; None if there is none."""
    match = _CONTEXT.match(correlation_id or "")
    if match is None:
        return None
    trace_id, span_id, flags = (int(digits, 16) for digits in match.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


@contextmanager
def _span(
    name: str, kind: SpanKind, topic: str, operation: str, parent: Span | None = None
) -> Iterator[Span]:
    tracer = trace.get_tracer("amperage.client", installed_version())
    attributes = {
        "messaging.system": _SYSTEM,
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    context = None if parent is None else trace.set_span_in_context(parent)
    with tracer.start_as_current_span(name, context, kind, attributes) as span:
        yield span
