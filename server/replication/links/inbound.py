"""The direction of a link in which this instance is the destination: the peer is the source.

    Begin <- ... Resume, Knowledge -> ... batches <- ... Acks ->

An ack is cumulative, so one is made when it can be sent, and no more than one in the interval that
the source asks for. The first ack after a pause does not wait, nor does one for so many bytes that
the source would exhaust its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.replication.links.interfaces import NEVER, RETRY_SECONDS
from server.replication.links.link_events import LinkDirection, LinkEvent

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

_LOOK_SECONDS: Final = 0.001
"""Least interval between checks for entries to acknowledge."""

_MAX_UNACKNOWLEDGED: Final = 2 << 20
"""Unacknowledged bytes after which an ack is sent at once: the source's window is small."""

_MAX_CLIENT: Final = 1024
_MICROSECONDS: Final = 1_000_000


class InboundReplication:
    """The receiving direction of a link. Constructing it starts it.

    Args:
        line: the link.
        peer: the source.
        frame: the request of the source.
        address: of the peer.
        transport: name of the transport that the connection was made by.
        branch: the entries that are gone from the log of either instance.
        tells_all: whether the source may be told of all publishers.
    """

    def __init__(
        self,
        line: ReplicationLink,
        peer: PeerInstance,
        frame: PositionRequest,
        address: str,
        transport: str,
        branch: LogBranch,
        *,
        tells_all: bool,
    ) -> None:
        self._line: Final = line
        replication = line.replication
        client = frame.client
        if not client.startswith(f"{peer.name}!") or len(client) > _MAX_CLIENT:
            client = f"{peer.name}!{replication.instance}"
        self._way: Final = LinkDirection(client, peer.name, peer.group, address, transport)
        self._interval: Final = frame.ack_interval / _MICROSECONDS
        self._acked = self._looked = NEVER
        self._unacknowledged = 0
        self._receiver: Final = replication.receiver(peer.name)
        self._answers: Final = self._receiver.begin(
            peer, frame, replication.acknowledgement.settled, branch, tells_all=tells_all
        )
        self._answer = next(self._answers, None)
        line.tell("1F-0006", client)
        replication.events.tell(LinkEvent.CONNECT_INCOMING, self._way)

    def end(self) -> None:
        """Note that the link is closed."""
        self._receiver.disconnected()
        self._answer = None

    def say_it_ended(self) -> None:
        """Log that the link is closed, and notify the watchers."""
        self._line.tell("1F-0008", self._way.client)
        self._line.replication.events.tell(LinkEvent.DISCONNECT_INCOMING, self._way)

    # Received frames.

    @property
    def is_stalled(self) -> bool:
        """True if the log has not accepted all of a batch: `go_on` must be called before `take`."""
        return self._receiver.is_stalled

    def take(self, batch: ReplicationBatch) -> None:
        """Append a batch to the log.

        Raises:
            ReplicationProtocolError: it is not the next batch, or is invalid.
        """
        self._unacknowledged += batch.size
        self._line.replication.received.add(batch.entries, batch.size)
        self._note(self._receiver.take(batch))

    def owe(self, frame: SkippedRanges) -> None:
        """Record the entries that the source has left out.

        Raises:
            ReplicationProtocolError: the frame is invalid.
        """
        self._receiver.owe(frame)

    def go_on(self) -> bool:
        """Continue with a batch accepted in part by the log; return whether it is complete."""
        self._note(self._receiver.go_on())
        if self.is_stalled:
            self._line.go_on_in(RETRY_SECONDS)
            return False
        return True

    def _note(self, taken: BatchCounts) -> None:
        if taken.conflicts:
            self._line.conflicts.note(self._way.peer, taken.conflicts)

    # Sent frames.

    def give(self) -> bool:
        """Send the next answer to a `PositionRequest`, and return whether there was one."""
        answer = self._answer
        if answer is None:
            return False
        self._answer = next(self._answers, None)  # its last actions belong to the previous answer
        self._line.send(answer)
        return True

    def acknowledge(self) -> None:
        """Send the source an ack of the stored entries, if one is due."""
        line = self._line
        if self._answer is not None or not line.is_ready:
            return
        now, replication = line.elapsed(), line.replication
        is_much = self._unacknowledged >= _MAX_UNACKNOWLEDGED
        due = max(self._looked + _LOOK_SECONDS, NEVER if is_much else self._acked + self._interval)
        if due > now:
            line.go_on_in(due - now)
            return
        self._looked = now
        ack = self._receiver.acknowledge(
            replication.durable, replication.acknowledgement.is_settled
        )
        if ack is not None:
            self._acked = now
            self._unacknowledged = 0
            line.send(ack)
