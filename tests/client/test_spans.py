"""Spans of publishes and of the handling of messages, as OpenTelemetry's SDK records them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from amperage.client import Message, connect
from amperage.client.spans import decode_context, encode_context, message_span, publish_span
from tests.support.server import ROOT, RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

server = module_server()


@pytest.fixture(scope="module")
def recorder() -> InMemorySpanExporter:
    """The one tracer provider of this process, set by its first test with spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def recorded(recorder: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    recorder.clear()
    yield recorder
    recorder.clear()


def _received(server: RunningServer, correlation_id: str | None) -> Message:
    """A message that has been published with a correlation id, as a subscriber gets it."""
    uri = f"tcp://127.0.0.1:{server.port}/amps/json"
    with connect(uri) as client, client.subscribe("orders") as messages:
        client.publish("orders", b'{"id":1}', correlation_id=correlation_id)
        return next(iter(messages))


def test_handling_is_a_child_of_the_publish(
    server: RunningServer, recorded: InMemorySpanExporter
) -> None:
    with (
        trace.get_tracer("test").start_as_current_span("request") as request,
        publish_span("orders", "mine") as correlation_id,
    ):
        message = _received(server, correlation_id)
    with message_span(message) as handling:
        assert trace.get_current_span() is handling
    sent, _, processed = recorded.get_finished_spans()
    assert (sent.name, sent.kind) == ("send orders", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("process orders", SpanKind.CONSUMER)
    assert sent.parent == request.get_span_context()
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert processed.parent.is_remote
    traces = {span.context.trace_id for span in (sent, processed)}
    assert traces == {request.get_span_context().trace_id}
    assert (
        dict(processed.attributes or {}).items()
        >= {
            "messaging.system": "amps",
            "messaging.destination.name": "orders",
            "messaging.operation.type": "process",
        }.items()
    )
    assert message.correlation_id is not None
    assert message.correlation_id.endswith("mine")


def test_a_message_without_a_context_begins_a_trace(
    server: RunningServer, recorded: InMemorySpanExporter
) -> None:
    with pytest.raises(ZeroDivisionError), message_span(_received(server, "mine")):
        raise ZeroDivisionError
    [span] = recorded.get_finished_spans()
    assert span.parent is None
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


@pytest.mark.parametrize(
    "text", [None, "", "mine", "00" + "0" * 50, "00" + "g" * 50, "00" + "1" * 49]
)
def test_other_correlation_ids_have_no_context(text: str | None) -> None:
    assert decode_context(text) is None


def test_a_context_has_characters_of_base64_only() -> None:
    context = SpanContext((1 << 127) + 1, (1 << 63) + 1, is_remote=True)
    text = encode_context(context)
    assert text.isalnum()
    assert decode_context(text + "+mine/==") == context


def test_without_a_provider_publishes_have_no_correlation_id_and_nothing_is_loaded() -> None:
    script = (
        "import sys, amperage.client\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
        "from amperage.client.spans import publish_span\n"
        "with publish_span('orders') as correlation_id: assert correlation_id is None\n"
        "with publish_span('orders', 'mine') as correlation_id: assert correlation_id == 'mine'\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=WAIT_SECONDS)
