"""The direction of a link in which this instance is the destination: the peer is the source.

    PositionRequest <- ... PositionResponse, DedupState -> ... ReplicationBatch <- ... Ack ->

An ack is cumulative, so one is made when it can be sent, and no more than one in the interval that
the source requests. The first ack after a pause does not wait, nor does one for so many bytes that
the source would exhaust its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.replication.links.interfaces import NEVER, RETRY_INTERVAL_S
from server.replication.links.link_events import LinkDirection, LinkEvent
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.replication.core import (
        BatchCounts,
        LogBranch,
        PeerInstance,
        PositionRequest,
        ReplicationBatch,
        SkippedRanges,
    )
    from server.replication.links.link import ReplicationLink

_CHECK_INTERVAL_S: Final = 0.001
"""Least interval between checks for entries to acknowledge."""

_MAX_UNACKNOWLEDGED: Final = 2 << 20
"""Unacknowledged bytes after which an ack is sent at once: the source's window is small."""

_MAX_CLIENT_NAME_LENGTH: Final = 1024


class InboundReplication:
    """The receiving direction of a link. Constructing it starts it.

    Args:
        link: the link.
        peer: the source.
        request: of the source.
        address: of the peer.
        transport: name of the transport that has made the connection.
        branch: the entries that are gone from the log of either instance.
        sends_all: whether the source may be sent the list of all publishers.
    """

    def __init__(
        self,
        link: ReplicationLink,
        peer: PeerInstance,
        request: PositionRequest,
        address: str,
        transport: str,
        branch: LogBranch,
        *,
        sends_all: bool,
    ) -> None:
        self._link: Final = link
        replication = link.replication
        client = request.client
        if not client.startswith(f"{peer.name}!") or len(client) > _MAX_CLIENT_NAME_LENGTH:
            client = f"{peer.name}!{replication.instance}"
        self._direction: Final = LinkDirection(client, peer.name, peer.group, address, transport)
        self._ack_interval_s: Final = request.ack_interval / MICROSECONDS_PER_SECOND
        self._last_ack_s = self._last_check_s = NEVER
        self._unacknowledged_bytes = 0
        self._receiver: Final = replication.receiver_for(peer.name)
        self._responses: Final = self._receiver.begin_link(
            peer, request, replication.ack_tracker.settled_txid, branch, sends_all=sends_all
        )
        self._next_response = next(self._responses, None)
        link.log_event("1F-0006", client)
        replication.events.notify(LinkEvent.CONNECT_INCOMING, self._direction)

    def end(self) -> None:
        """End the direction: the link is closed."""
        self._receiver.end_link()
        self._next_response = None

    def report_ended(self) -> None:
        """Log that the link is closed, and notify the watchers."""
        self._link.log_event("1F-0008", self._direction.client)
        self._link.replication.events.notify(LinkEvent.DISCONNECT_INCOMING, self._direction)

    # received frames

    @property
    def is_blocked(self) -> bool:
        """True if the log has not accepted all of a batch: `resume_batch` must be called next."""
        return self._receiver.is_blocked

    def receive_batch(self, batch: ReplicationBatch) -> None:
        """Append a batch to the log.

        Raises:
            ReplicationProtocolError: it is not the next batch, or is invalid.
        """
        self._unacknowledged_bytes += batch.size_bytes
        self._link.replication.received_traffic.add(batch.entry_count, batch.size_bytes)
        self._record_conflicts(self._receiver.receive_batch(batch))

    def record_skipped(self, frame: SkippedRanges) -> None:
        """Record the entries that the source has skipped.

        Raises:
            ReplicationProtocolError: the frame is invalid.
        """
        self._receiver.record_skipped(frame)

    def resume_batch(self) -> bool:
        """Continue with a batch accepted in part by the log; return whether it is complete."""
        self._record_conflicts(self._receiver.resume_batch())
        if self.is_blocked:
            self._link.wake_after(RETRY_INTERVAL_S)
            return False
        return True

    def _record_conflicts(self, counts: BatchCounts) -> None:
        if counts.conflicts:
            self._link.conflict_log.record_conflicts(self._direction.peer, counts.conflicts)

    # sent frames

    def send_next(self) -> bool:
        """Send the next response to a `PositionRequest`, and return whether there was one."""
        next_response = self._next_response
        if next_response is None:
            return False
        # fetched before the send: the last actions of the generator belong to this response
        self._next_response = next(self._responses, None)
        self._link.send(next_response)
        return True

    def send_ack(self) -> None:
        """Send the source an ack of the stored entries, if one is due."""
        link = self._link
        if self._next_response is not None or not link.is_ready:
            return
        now, replication = link.elapsed(), link.replication
        is_window_filling = self._unacknowledged_bytes >= _MAX_UNACKNOWLEDGED
        due_at = max(
            self._last_check_s + _CHECK_INTERVAL_S,
            NEVER if is_window_filling else self._last_ack_s + self._ack_interval_s,
        )
        if due_at > now:
            link.wake_after(due_at - now)
            return
        self._last_check_s = now
        ack = self._receiver.make_ack(replication.durable_txid, replication.ack_tracker.is_settled)
        if ack is not None:
            self._last_ack_s = now
            self._unacknowledged_bytes = 0
            link.send(ack)
