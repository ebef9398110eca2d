"""Batches of a queue's messages that are delivered to one consumer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from amperage.wire.framing import frame_batch
from server.topics.subscriptions.delivery.envelope import Envelope, iso_timestamp
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.queues.topic.message_batch import QueueBatchPart

_Value = TypeVar("_Value")


class QueueDeliveryBatch:
    """Messages of one publisher that one consumer gets together; see `MessageBatch`.

    They always carry their bookmarks, by which they are acknowledged, and the end of the lease if
    there is one (AMPS Command Reference, LeasePeriod).

    Args:
        parts: the messages; all their batches have the same publisher and header keys.
        lease: the header key for the end of the lease, empty for none.
    """

    def __init__(self, parts: Sequence[QueueBatchPart], lease: bytes) -> None:
        self._parts = parts
        self._lease = lease
        self.bodies: Sequence[bytes] = _joined(
            [part.select_values(part.batch.bodies) for part in parts]
        )
        self._keys = parts[0].batch.keys

    def __len__(self) -> int:
        return len(self.bodies)

    def frames(
        self,
        header_start: bytes,
        header_end: bytes,
        presented: Sequence[bytes] | None,
        *,
        timestamp: bool,
        bookmark: bool,  # noqa: ARG002 - a message of a queue always has one
        record: bool,  # noqa: ARG002 - the messages are from the log, which has no records
    ) -> bytes:
        """See `MessageBatch`."""
        parts = self._parts
        varying = b',"bm":"%d|%%d|"' % parts[0].batch.client + self._lease
        sequences = _joined([part.select_values(part.batch.sequences) for part in parts])
        columns: list[Sequence[int | bytes]] = [sequences]
        if timestamp:
            varying += b',"ts":"%s"'
            times_us = _joined([part.select_values(part.batch.recorded_us) for part in parts])
            columns.append([_timestamp_text(time_us) for time_us in times_us])
        start, keys, end = (
            text.replace(b"%", b"%%") for text in (header_start, self._keys, header_end)
        )
        bodies = self.bodies if presented is None else presented
        return frame_batch(start + b',"l":%d' + keys + varying + end, bodies, columns)

    def envelope(self, position: int) -> Envelope:
        """See `MessageBatch`."""
        for part in self._parts:
            if position < len(part.positions):
                break
            position -= len(part.positions)
        batch, index = part.batch, part.positions[position]
        envelope = copy(batch.envelope(index))
        envelope.received_s = batch.recorded_us[index] / MICROSECONDS_PER_SECOND
        envelope.bookmark = f"{batch.client}|{batch.sequences[index]}|"
        envelope.header_keys += envelope.bookmark_key + self._lease
        return envelope


def _joined(columns: Sequence[Sequence[_Value]]) -> Sequence[_Value]:
    return columns[0] if len(columns) == 1 else [value for column in columns for value in column]


def _timestamp_text(microseconds: int) -> bytes:
    return iso_timestamp(microseconds / MICROSECONDS_PER_SECOND).encode()


def lease_key(until: int | None) -> bytes:
    """Return the header key of a lease's end, as JSON text with a leading comma; empty for none."""
    return b"" if until is None else b',"lp":"%s"' % _timestamp_text(until)
