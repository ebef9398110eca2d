"""The queue of spans between the engine's thread and the thread that exports them."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

SpanAttributes: TypeAlias = dict[str, str | float]

MAX_QUEUED_SPANS: Final = 8192
"""Spans that wait for their export. Later ones are dropped."""


class MessageSpan(NamedTuple):
    """A span of one operation on a sampled message.

    Attributes:
        operation: publish, log, replicate, deliver or ack.
        topic: the message's topic.
        trace_id: the trace.
        parent_id: the span that the message was published in.
        start_ns: its start, in nanoseconds since 1970.
        end_ns: its end.
        attributes: the attributes that differ between messages.
    """

    operation: str
    topic: str
    trace_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: SpanAttributes


class SpanQueue:
    """A bounded queue of spans. One thread adds them, another one takes them.

    Attributes:
        exported: spans that the collector has accepted; changed by the thread that takes them.
        lost: spans that could not be exported; likewise.
    """

    def __init__(self) -> None:
        self.exported = 0
        self.lost = 0
        self._overflowed = 0
        self._spans: Final = deque[MessageSpan]()

    @property
    def dropped(self) -> int:
        """Spans that no collector gets: the queue was full, or their export has failed."""
        return self._overflowed + self.lost

    def add(self, span: MessageSpan) -> None:
        """Append a span; drop it if the queue is full."""
        if len(self._spans) < MAX_QUEUED_SPANS:
            self._spans.append(span)
        else:
            self._overflowed += 1

    def take_batch(self, size: int) -> list[MessageSpan]:
        """Remove the oldest spans, at most `size`, and return them."""
        return [self._spans.popleft() for _ in range(min(size, len(self._spans)))]
