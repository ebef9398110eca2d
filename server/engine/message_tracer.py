"""Spans of sampled messages: publish, log, replicate, deliver and ack.

    TracedReader --commands with a context-->  SessionTracer  --spans-->  SpanQueue --> an exporter
    the output of the session ---------------/                            (another thread)

A message is sampled if its correlation id begins with the context of a sampled span, as clients
write it: a W3C traceparent without its dashes. All spans are children of that span, so they are of
one trace at every instance that has the message. Nothing is added to the message.

Input and output are only looked at: batches stay whole, and their correlation ids are searched once
per batch. An instance without a tracer runs none of this code.

Source: W3C Trace Context, 3.2; OpenTelemetry, Semantic Conventions for Messaging Spans.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from amperage.wire.framing import FrameReader, split_at_header_end
from amperage.wire.reader_wrapper import ReaderWrapper
from server.engine.span_queue import MessageSpan, SpanAttributes, SpanQueue
from server.storage.journal import MESSAGES
from server.topics.replicated.batch import EntryContents

if TYPE_CHECKING:
    from amperage.wire.frame_batches import FrameBatch
    from amperage.wire.framing import Frame, FrameSource
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.replication.core import BatchColumns

_CONTEXT: Final = re.compile(r"00([0-9a-f]{32})([0-9a-f]{16})[0-9a-f][13579bdf]")
_SENT_KEY: Final = b'"x":"00'
_RECEIVED_KEY: Final = b'"x"'  # clients may write spaces behind it
_CONTEXT_VERSION: Final = b"00"
_ACKS: Final = frozenset(("ack", "sow_delete"))
_PUBLISHES: Final = frozenset(("p", "publish", "delta_publish"))
_RETRY_S: Final = 0.005
"""Between two checks whether a command has been executed that waits for a later time slice."""
_MAX_TRACED_LEASES: Final = 10_000
"""Leased messages of one session with spans of their acks; beyond, the oldest ones have none."""


class TraceContext(NamedTuple):
    """The span that a message was published in, by its ids."""

    trace_id: int
    span_id: int


class _Command(NamedTuple):
    """A command with a context that may not have been executed yet.

    Attributes:
        operation: the operation of its span.
        topic: its topic.
        context: the parent of its span.
        position: its position in the input of the session.
        start_ns: when it was received.
        last_txid: the last txid in the log at that moment.
        sequence: the sequence number of a publish, as text; empty without one.
        attributes: of its span.
    """

    operation: str
    topic: str
    context: TraceContext
    position: int
    start_ns: int
    last_txid: int
    sequence: str
    attributes: SpanAttributes


class _Lease(NamedTuple):
    topic: str
    context: TraceContext
    start_ns: int


def decode_context(correlation_id: object) -> TraceContext | None:
    """Return the context at the beginning of a correlation id; None if there is no sampled one."""
    match = _CONTEXT.match(correlation_id) if isinstance(correlation_id, str) else None
    if match is None:
        return None
    context = TraceContext(int(match[1], 16), int(match[2], 16))
    return context if all(context) else None


class MessageTracer:
    """Makes the spans of an instance.

    Args:
        engine: the engine.
        queue: takes the spans.
    """

    def __init__(self, engine: Engine, queue: SpanQueue) -> None:
        self.queue: Final = queue
        self._engine: Final = engine

    def now_ns(self) -> int:
        """Return the wall-clock time, in nanoseconds since 1970."""
        return int(self._engine.clock.now() * 1e9)

    def add_span(
        self,
        operation: str,
        topic: str,
        context: TraceContext,
        start_ns: int,
        attributes: SpanAttributes,
    ) -> None:
        """Add a span that ends now."""
        span = MessageSpan(operation, topic, *context, start_ns, self.now_ns(), attributes)
        self.queue.add(span)

    def trace_log(
        self, topic: str, context: TraceContext, start_ns: int, attributes: SpanAttributes
    ) -> None:
        """Add the span of a message that has been appended, once it is on stable storage."""
        log = self._engine.transaction_log
        if log is not None:
            log.when_durable(partial(self.add_span, "log", topic, context, start_ns, attributes))

    @property
    def last_txid(self) -> int:
        """The last txid in the transaction log; 0 without one."""
        log = self._engine.transaction_log
        return 0 if log is None else log.last_txid

    def is_journaled(self, message_type: str, topic: str) -> bool:
        """Return whether the messages of a topic are in the transaction log."""
        topics = self._engine.topics
        # `find` makes a topic that is not in use: of a refused message, for instance.
        return (
            topics.is_in_use(message_type, topic) and topics.find(message_type, topic).is_journaled
        )

    def trace_replicated(self, entries: BatchColumns, source: str, start_ns: int) -> None:
        """Add the spans of messages that another instance has sent, after they were recorded.

        Args:
            entries: the messages, and other entries.
            source: the name of the instance.
            start_ns: when they were received.
        """
        contents = EntryContents(entries)
        if not contents.has_extras:
            return
        for position, kind in enumerate(entries.kinds):
            if kind not in MESSAGES:
                continue
            context = decode_context(contents.correlation_id(position))
            if context is None:
                continue
            topic = entries.properties_of(position).topic.name
            attributes: SpanAttributes = {
                "messaging.message.id": contents.bookmark(position),
                "amps.replication.source": source,
            }
            self.add_span("replicate", topic, context, start_ns, attributes)
            self.trace_log(topic, context, self.now_ns(), attributes)


class SessionTracer:
    """Makes the spans of one session.

    Args:
        tracer: makes the spans of the instance.
        send: takes the output of the session.
    """

    def __init__(self, tracer: MessageTracer, send: Callable[[bytes], None]) -> None:
        self._tracer: Final = tracer
        self._send: Final = send
        self._session: Session | None = None
        self._commands: Final = deque[_Command]()
        self._leases: Final = dict[tuple[str, str], _Lease]()  # by topic and bookmark
        self._received = 0  # commands

    def attach(self, session: Session) -> None:
        """Look at the input of a session, whose output goes through `send`."""
        self._session = session
        session.input.wrap_reader(partial(TracedReader, self))

    def send(self, data: bytes) -> None:
        """Pass output on, and add the spans of the messages in it."""
        start_ns = self._tracer.now_ns()
        self._send(data)
        if _SENT_KEY in data:
            for frame in FrameReader().feed(data):
                if _SENT_KEY in frame[0]:
                    self._trace_delivery(_decode(frame), start_ns)

    def add_commands(self, batch: FrameBatch | None, frames: Sequence[Frame]) -> None:
        """Add commands that are executed next: those of a batch, then others."""
        was_idle = not self._commands
        if batch is not None:
            for index, correlation_id in enumerate(batch.values.correlation_ids):
                if correlation_id.startswith(_CONTEXT_VERSION):
                    frame = batch.headers[index], batch.bodies[index]
                    self._add_command(_decode(frame), self._received + index + 1)
            self._received += len(batch.bodies)
        for frame in frames:
            self._received += 1
            if _RECEIVED_KEY in frame[0] or self._leases:
                self._add_command(_decode(frame), self._received)
        if was_idle and self._commands:
            self._schedule_check(0)

    def _trace_delivery(self, fields: dict[str, object], start_ns: int) -> None:
        context = decode_context(fields.get("x"))
        session = self._session
        if context is None or session is None or fields.get("c") not in _PUBLISHES:
            return
        topic, bookmark, lease = (str(fields.get(key, "")) for key in ("t", "bm", "lp"))
        attributes = _attributes(session, bookmark)
        if lease:
            attributes["amps.queue.lease_until"] = lease
            if len(self._leases) >= _MAX_TRACED_LEASES:
                del self._leases[next(iter(self._leases))]
            self._leases[topic, bookmark] = _Lease(topic, context, start_ns)
        self._tracer.add_span("deliver", topic, context, start_ns, attributes)

    def _add_command(self, fields: dict[str, object], position: int) -> None:
        if fields.get("c") in _ACKS:
            self._add_acks(fields, position)
        elif fields.get("c") in _PUBLISHES and (context := decode_context(fields.get("x"))):
            topic, start_ns = str(fields.get("t", "")), self._tracer.now_ns()
            last_txid, sequence = self._tracer.last_txid, str(fields.get("s") or "")
            self._commands.append(
                _Command("publish", topic, context, position, start_ns, last_txid, sequence, {})
            )

    def _add_acks(self, fields: dict[str, object], position: int) -> None:
        """Add an ack of leased messages; more than one bookmark is separated by commas."""
        topic, ack_options = (
            str(fields.get("t", "")),
            str(fields.get("o") or fields.get("opts", "")),
        )
        if "extend" in ack_options.split(","):
            return  # the messages stay leased
        for bookmark in str(fields.get("bm", "")).split(","):
            lease = self._leases.pop((topic, bookmark), None)
            if lease is None:
                continue
            start_ns = self._tracer.now_ns()
            attributes: SpanAttributes = {
                "messaging.message.id": bookmark,
                "amps.queue.lease_held_s": (start_ns - lease.start_ns) / 1e9,
            }
            if ack_options:
                attributes["amps.queue.ack_options"] = ack_options
            self._commands.append(
                _Command("ack", lease.topic, lease.context, position, start_ns, 0, "", attributes)
            )

    def _schedule_check(self, delay_s: float) -> None:
        if self._session is not None:
            self._session.engine.clock.call_later(delay_s, self._end_executed)

    def _end_executed(self) -> None:
        """End the spans of the commands that have been executed, and check again for others."""
        session, commands = self._session, self._commands
        if session is None:
            return
        while commands and commands[0].position <= session.input.messages_in:
            self._end_command(session, commands.popleft())
        if not session.is_open:
            commands.clear()  # they have been discarded
        if commands:
            self._schedule_check(_RETRY_S)

    def _end_command(self, session: Session, command: _Command) -> None:
        operation, topic, context, _, start_ns, last_txid, sequence, attributes = command
        bookmark = f"{session.client_hash}|{sequence}|" if sequence else ""
        attributes = _attributes(session, bookmark) | attributes
        self._tracer.add_span(operation, topic, context, start_ns, attributes)
        is_publish, tracer = operation == "publish", self._tracer
        # A message that has been refused, or published before, is not recorded.
        has_recorded = is_publish and tracer.last_txid > last_txid
        if has_recorded and tracer.is_journaled(session.message_type, topic):
            tracer.trace_log(topic, context, tracer.now_ns(), attributes)


class TracedReader(ReaderWrapper):
    """Shows the frames of the input to a tracer.

    Args:
        tracer: looks at the frames.
        reader: splits the input.
    """

    def __init__(self, tracer: SessionTracer, reader: FrameSource) -> None:
        super().__init__(reader)
        self._tracer: Final = tracer
        self._frames: Sequence[Frame] = ()

    def feed(self, chunk: bytes) -> list[Frame]:
        """See `FrameReader.feed`. The frames of a batch come first: see `take_batch`."""
        frames = super().feed(chunk)
        self._frames = frames
        return frames

    def take_batch(self) -> FrameBatch | None:
        """See `FrameReader.take_batch`. Called after each `feed`."""
        batch, frames = super().take_batch(), self._frames
        self._frames = ()
        self._tracer.add_commands(batch, frames)
        return batch


def _decode(frame: Frame) -> dict[str, object]:
    """Return the fields of the header of a frame; empty for one that is refused."""
    header, body = frame
    try:
        if header.count(b'"') % 2 or b"\\" in header:  # there may be a brace inside a string
            header, _ = split_at_header_end(header, body)
        return msgspec.json.decode(header, type=dict[str, object])
    except (msgspec.DecodeError, ValueError):
        return {}


def _attributes(session: Session, bookmark: str) -> SpanAttributes:
    attributes: SpanAttributes = {"messaging.client.id": session.client_name}
    if bookmark:
        attributes["messaging.message.id"] = bookmark
    return attributes
