"""Spans of sampled messages, from publish to ack, as a collector gets them from two instances."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from server.admin.metrics.otlp_spans import OtlpSpanExport
from server.engine.span_queue import MAX_QUEUED_SPANS, MessageSpan, SpanQueue
from tests.admin.otlp_collector import OtlpCollector, OtlpHandler, serving
from tests.admin.support import running_admin
from tests.engine.support import RecordingLog
from tests.support.cluster import PAIR, Cluster, cluster
from tests.support.queues import queue
from tests.support.raw import RawPeer, frame
from tests.support.server import free_port
from tests.support.waiting import wait_until

PARENT = "b7ad6b7169203331"


class CollectedSpan(NamedTuple):
    """A span, as the collector has got it."""

    instance: str
    operation: str
    trace_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class Collector(OtlpCollector):
    """A collector that keeps all spans, and takes metrics without reading them."""

    def __init__(self, port: int) -> None:
        super().__init__(port, _Handler)
        self.spans: list[CollectedSpan] = []

    def of(self, trace_id: str) -> dict[tuple[str, str], CollectedSpan]:
        """The spans of a trace, by instance and operation with the topic."""
        return {
            (
                span.instance,
                f"{span.operation} {span.attributes['messaging.destination.name']}",
            ): span
            for span in list(self.spans)
            if span.trace_id == trace_id
        }


class _Handler(OtlpHandler):
    server: Collector

    def collect(self, path: str, content: bytes) -> bytes:
        if path == "/v1/traces":
            for about in ExportTraceServiceRequest.FromString(content).resource_spans:
                resource = _values(about.resource.attributes)
                for scope in about.scope_spans:
                    self.server.spans += [_collected(resource, span) for span in scope.spans]
        return ExportTraceServiceResponse().SerializeToString()


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def _collected(resource: dict[str, Any], span: Any) -> CollectedSpan:
    attributes = _values(span.attributes)
    return CollectedSpan(
        resource["service.instance.id"],
        attributes["messaging.operation.name"],
        span.trace_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        attributes,
    )


def tracing(port: int) -> str:
    return (
        f"<OpenTelemetry><Endpoint>http://127.0.0.1:{port}</Endpoint>"
        "<Traces>enabled</Traces></OpenTelemetry>"
    )


def correlation_id(trace_id: str, flags: str = "01") -> str:
    return f"00{trace_id}{PARENT}{flags}+mine"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Collector]]:
    """Two instances that replicate to each other, with a queue, and a collector of both."""
    port = free_port()
    elements = f"<SOW>{queue('jobs', {'LeasePeriod': '1m'})}</SOW><Admin>{tracing(port)}</Admin>"
    with (
        serving(Collector(port)) as found,
        cluster(tmp_path_factory.mktemp("traces"), PAIR, elements=elements) as instances,
    ):
        instances.start()
        for one in instances:
            assert one.server.waits_for(lambda log: "21-0001" in log)
        yield instances, found


def next_message(peer: RawPeer) -> dict[str, Any]:
    """The header of the next message that is no ack."""
    while (header := peer.receive()[0])["c"] == "ack":
        pass
    return header


def test_a_message_is_followed_from_publish_through_replication_to_its_ack(
    traced: tuple[Cluster, Collector],
) -> None:
    instances, found = traced
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with (
        instances["A"].server.log_on("producer") as publisher,
        instances["A"].server.log_on("worker") as worker,
        instances["B"].server.log_on("auditor") as auditor,
    ):
        auditor.ask({"c": "subscribe", "cid": "1", "t": "in-jobs", "a": "processed"})
        worker.ask({"c": "subscribe", "cid": "1", "t": "jobs", "a": "processed"})
        header = {"c": "p", "t": "in-jobs", "s": 1, "x": correlation_id(trace_id)}
        publisher.send(header, b'{"id":1}')
        publisher.flush()
        leased = next_message(worker)
        assert next_message(auditor)["x"] == leased["x"] == correlation_id(trace_id)
        worker.send({"c": "ack", "t": "jobs", "bm": leased["bm"]})
        expected = {
            ("A", "publish in-jobs"),
            ("A", "log in-jobs"),
            ("A", "deliver jobs"),
            ("A", "ack jobs"),
            ("B", "replicate in-jobs"),
            ("B", "log in-jobs"),
            ("B", "deliver in-jobs"),
        }
        wait_until(
            lambda: found.of(trace_id).keys() >= expected, lambda: str(sorted(found.of(trace_id)))
        )
    spans = found.of(trace_id)
    assert spans.keys() == expected
    assert {span.parent_id for span in spans.values()} == {PARENT}
    assert all(span.start_ns <= span.end_ns for span in spans.values())
    assert {span.attributes["messaging.system"] for span in spans.values()} == {"amps"}
    ids = {key: span.attributes.get("messaging.message.id") for key, span in spans.items()}
    assert ids.pop(("B", "deliver in-jobs")) is None  # without a bookmark, as the subscription
    assert set(ids.values()) == {leased["bm"]}
    clients = {key: span.attributes.get("messaging.client.id", "") for key, span in spans.items()}
    assert clients["A", "publish in-jobs"] == "producer"
    assert clients["A", "ack jobs"] == "worker"
    assert clients["B", "deliver in-jobs"] == "auditor"
    assert spans["B", "replicate in-jobs"].attributes["amps.replication.source"] == "A"
    assert spans["A", "deliver jobs"].attributes["amps.queue.lease_until"] == leased["lp"]
    assert spans["A", "ack jobs"].attributes["amps.queue.lease_held_s"] >= 0
    types = {
        operation: span.attributes.get("messaging.operation.type")
        for (_, operation), span in spans.items()
    }
    assert types["publish in-jobs"] == "receive"
    assert types["deliver jobs"] == "send"
    assert types["ack jobs"] == "settle"


def test_each_sampled_message_of_a_batch_has_spans_and_the_others_have_none(
    traced: tuple[Cluster, Collector],
) -> None:
    instances, found = traced
    sampled = [f"{number:032x}" for number in range(1000, 1010)]
    unsampled = [f"{number:032x}" for number in range(2000, 2050)]
    with (
        instances["A"].server.log_on("bulk") as publisher,
        instances["A"].server.log_on("reader") as reader,
    ):
        reader.ask({"c": "subscribe", "cid": "1", "t": "batch", "a": "processed"})
        ids = [
            correlation_id(sampled[number // 50])
            if number % 50 == 49
            else correlation_id(unsampled[number % 50], "00")
            if number % 2
            else "mine"
            for number in range(500)
        ]
        for number, text in enumerate(ids):
            header = {"c": "p", "t": "batch", "s": number + 1, "x": text}
            publisher.send(header, b'{"id":1,"note":"{\\"x\\":\\"%s\\"}"}' % text.encode())
        publisher.flush()
        assert [next_message(reader)["x"] for _ in ids] == ids
        expected = {
            *((("A", f"{name} batch")) for name in ("publish", "log", "deliver")),
            *((("B", f"{name} batch")) for name in ("replicate", "log")),
        }
        wait_until(
            lambda: all(found.of(trace_id).keys() == expected for trace_id in sampled),
            lambda: str([sorted(found.of(trace_id)) for trace_id in sampled]),
        )
    numbers = [
        found.of(trace_id)["A", "publish batch"].attributes["messaging.message.id"].split("|")[1]
        for trace_id in sampled
    ]
    assert numbers == [str(number) for number in range(50, 501, 50)]
    assert not any(found.of(trace_id) for trace_id in unsampled)


def test_a_large_message_is_followed_and_its_body_is_not_read_as_frames(
    traced: tuple[Cluster, Collector],
) -> None:
    instances, found = traced
    trace_id, forged = "a" * 32, "f" * 32
    inner = frame({"c": "p", "t": "forged", "x": correlation_id(forged)})
    with instances["A"].server.log_on("large") as peer:
        peer.ask({"c": "subscribe", "cid": "1", "t": "large", "a": "processed"})
        header = {"c": "p", "t": "large", "s": 1, "x": correlation_id(trace_id)}
        peer.send(header, inner * 5_000)
        assert next_message(peer)["x"] == correlation_id(trace_id)
        wait_until(lambda: ("A", "deliver large") in found.of(trace_id))
    assert not found.of(forged)


def test_headers_in_any_form_have_spans(traced: tuple[Cluster, Collector]) -> None:
    instances, found = traced
    braced, spaced = "b" * 32, "c" * 32
    with instances["A"].server.log_on("odd") as peer:
        peer.ask({"c": "subscribe", "cid": "1", "t": "odd", "a": "processed"})
        peer.send({"c": "p", "t": "odd", "s": 1, "x": correlation_id(braced) + '{"a":"}"}'}, b"{}")
        header = json.dumps({"c": "p", "t": "odd", "s": 2, "x": correlation_id(spaced)}).encode()
        peer.socket.sendall(struct.pack(">I", len(header) + 2) + header + b"{}")
        expected = {("A", f"{name} odd") for name in ("publish", "log", "deliver")}
        for trace_id in (braced, spaced):
            wait_until(lambda: found.of(trace_id).keys() >= expected)  # noqa: B023 - at once


def test_only_what_has_been_executed_and_recorded_has_spans(
    traced: tuple[Cluster, Collector],
) -> None:
    instances, found = traced
    server, ids = instances["A"].server, [f"{number:032x}" for number in range(3000, 3005)]
    with RawPeer(server.port) as stranger:  # it has not logged on
        stranger.send({"c": "p", "t": "never", "x": correlation_id(ids[0])}, b"{}")
        assert stranger.is_disconnected()
    with server.log_on("twice") as peer:
        for trace_id in ids[1:3]:  # the second one is refused: its number has been used
            peer.send({"c": "p", "t": "twice", "s": 1, "x": correlation_id(trace_id)}, b"{}")
            peer.flush()
        peer.socket.sendall(
            frame({"c": "ack"})  # it names no queue, which ends the connection
            + frame({"c": "p", "t": "twice", "s": 2, "x": correlation_id(ids[3])}, b"{}")
        )
        assert peer.is_disconnected()
    with server.log_on("last") as peer:
        peer.send({"c": "p", "t": "twice", "s": 1, "x": correlation_id(ids[4])}, b"{}")
        wait_until(lambda: ("A", "log twice") in found.of(ids[4]))
    operations = [sorted(name for at, name in found.of(one) if at == "A") for one in ids[:4]]
    assert operations == [
        ["publish never"],
        ["log twice", "publish twice"],
        ["publish twice"],
        [],
    ]
    assert "01-0004" not in server.log_file.read_text()


def test_an_extended_lease_has_its_ack_later(traced: tuple[Cluster, Collector]) -> None:
    instances, found = traced
    trace_id = "d" * 32
    with (
        instances["A"].server.log_on("giver") as publisher,
        instances["A"].server.log_on("holder") as holder,
    ):
        holder.ask({"c": "subscribe", "cid": "1", "t": "jobs", "a": "processed"})
        publisher.send({"c": "p", "t": "in-jobs", "s": 1, "x": correlation_id(trace_id)}, b"{}")
        leased = next_message(holder)
        for options in ({"o": "extend"}, {}):
            holder.send({"c": "sow_delete", "t": "jobs", "bm": leased["bm"]} | options)
        wait_until(lambda: ("A", "ack jobs") in found.of(trace_id))
    assert "amps.queue.ack_options" not in found.of(trace_id)["A", "ack jobs"].attributes


def test_a_collector_that_is_away_disturbs_nobody_and_what_is_dropped_is_counted(
    tmp_path: Path,
) -> None:
    port = free_port()

    def dropped() -> bool:
        text = admin.ask("/metrics").text
        return any(
            line.startswith("amperage_spans_dropped_total ") and float(line.split()[1]) > 0
            for line in text.splitlines()
        )

    with running_admin(tmp_path, admin=tracing(port)) as admin:
        with admin.server.log_on("producer") as peer:
            peer.send({"c": "p", "t": "t", "x": correlation_id("1" * 32)}, b"{}")
            peer.flush()
        wait_until(lambda: admin.server.logs("19-0017"))
        wait_until(lambda: admin.server.logs("19-0019"))
        wait_until(dropped)
        with serving(Collector(port)) as found:
            with admin.server.log_on("producer") as peer:
                peer.send({"c": "p", "t": "t", "x": correlation_id("2" * 32)}, b"{}")
                peer.flush()
            wait_until(lambda: set(found.of("2" * 32)) != set())
            wait_until(lambda: admin.server.logs("19-0018"))
        assert admin.server.log_file.read_text().count("19-0017") == 1


def test_the_queue_of_spans_is_bounded() -> None:
    log, spans, port = RecordingLog(), SpanQueue(), free_port()
    for number in range(MAX_QUEUED_SPANS + 3):
        spans.add(MessageSpan("publish", "t", 1, number + 1, 1, 2, {}))
    with serving(Collector(port)) as found:
        export = OtlpSpanExport(
            f"http://127.0.0.1:{port}", {"service.instance.id": "x"}, spans, log
        )
        export.start()
        try:
            wait_until(lambda: log.entries != [])
        finally:
            export.close()
    assert [int(span.parent_id, 16) for span in found.spans] == [
        number + 1 for number in range(MAX_QUEUED_SPANS)
    ]
    assert log.entries == [("19-0019", {"count": 3})]
    assert (spans.exported, spans.dropped) == (MAX_QUEUED_SPANS, 3)
