"""Frames for the records of a query.

A frame contains up to the batch size that the client requested, of one topic: a header with the
common fields, then each record's own header and body. A frame is sent when it is full.

Source: AMPS Command Reference, sow: Content from Server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amperage.wire.framing import frame
from amperage.wire.header import json_text
from server.storage.sow.records import to_seconds
from server.topics.subscriptions.delivery.envelope import correlation_key, iso_timestamp

if TYPE_CHECKING:
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.presentation import Presentation


class BatchWriter:
    """Frames the records of one query.

    Args:
        query_id: the query's id.
        batch_size: the maximum number of records in a frame.
        presentation: the form in which they are sent.
        send: called with each frame and the number of records in it.
    """

    __slots__ = ("_batch_size", "_presentation", "_query_id", "_records", "_send", "_topic")

    def __init__(
        self,
        query_id: str,
        batch_size: int,
        presentation: Presentation,
        send: Callable[[bytes, int], None],
    ) -> None:
        self._query_id = json_text(query_id)
        self._batch_size = batch_size
        self._presentation = presentation
        self._send = send
        self._topic = ""
        self._records: list[bytes] = []

    def add(self, record: Record, body: bytes) -> None:
        """Add a record to the current frame.

        Args:
            record: the record.
            body: its body, or the selected fields of it.
        """
        if record.topic != self._topic:
            self.flush()
            self._topic = record.topic
        presentation = self._presentation
        body = presentation.format_body(body)
        timestamp = b""
        if presentation.has_timestamp:
            timestamp = b',"ts":"%b"' % iso_timestamp(to_seconds(record.timestamp)).encode()
        header = b'"l":%d%b%b}' % (len(body), correlation_key(record.correlation_id), timestamp)
        key = b'"k":%b,' % json_text(record.key) if presentation.has_sow_key else b""
        self._records.append(b"{%b%b%b" % (key, header, body))
        if len(self._records) == self._batch_size:
            self.flush()

    def flush(self) -> None:
        """Send the current frame, unless it is empty."""
        if self._records:
            header = b'{"c":"sow","query_id":%b,"t":%b,"bs":%d}' % (
                self._query_id,
                json_text(self._topic),
                len(self._records),
            )
            self._send(frame(header, b"".join(self._records)), len(self._records))
            self._records.clear()
