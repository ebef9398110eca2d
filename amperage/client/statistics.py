"""The statistics of a client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The traffic of a client since it was made, on all its connections, and its buffers.

    Attributes:
        messages_published: the messages published by the application.
        messages_received: the messages and records received for subscriptions and queries.
        bytes_sent: the bytes written to sockets, before TLS.
        bytes_received: the bytes read from sockets, after TLS.
        reconnects: the sessions after the first.
        outstanding: the published messages that the client keeps until they are stored. A client
            without a publish store counts only messages with a delivery report.
        waiting: the messages that wait in streams to be taken.
        streams: the subscriptions and queries that are open.
    """

    messages_published: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    reconnects: int
    outstanding: int
    waiting: int
    streams: int


class TrafficCounters:
    """The counters of a client's traffic, which its connections and protocols increase."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "messages_published",
        "messages_received",
        "sessions",
    )

    def __init__(self) -> None:
        self.messages_published = 0
        self.messages_received = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.sessions = 0
