"""The direction of a link in which this instance is the source: the peer is a destination.

PositionRequest -> ... PositionResponse, DedupState <- ... ReplicationBatch -> ... Ack <-
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.replication.core import PositionResponse
from server.replication.links.interfaces import NEVER, RETRY_INTERVAL_S
from server.replication.links.link_events import LinkDirection, LinkEvent, link_name
from server.storage.journal import JournalUnreadableError
from server.storage.journal.format.layout import CLIENT, SEQUENCE

if TYPE_CHECKING:
    from server.replication.core import Ack, DedupState, PeerInstance, ResumePosition
    from server.replication.links.link import ReplicationLink
    from server.replication.links.replication_state import ReplicationDestination
    from server.storage.journal import DamagedEntry

_NANOSECONDS: Final = 1000  # in a microsecond
_MAX_NAMED: Final = 10  # damaged entries


class OutboundReplication:
    """The sending direction of a link. Constructing it starts it.

    Args:
        link: the link.
        destination: the destination.
        peer: the instance that is connected.
        address: of the peer.
        transport: name of the transport that has made the connection.

    Attributes:
        is_flushing: whether to send the destination the position up to which the log has been read,
            even if no entries are sent there; to be set once a second.
    """

    def __init__(
        self,
        link: ReplicationLink,
        destination: ReplicationDestination,
        peer: PeerInstance,
        address: str,
        transport: str,
    ) -> None:
        self.is_flushing = False
        self._link: Final = link
        self._destination: Final = destination
        self._next_read_s = NEVER  # time of the next attempt, after the log could not be read
        self._is_caught_up = False
        spec = destination.spec
        kind = spec.transports[0].type if spec.transports else "amps-replication"
        source = link.replication.instance
        client = link_name(source, spec.name, spec.group, spec.sync_type, kind)
        destination.direction = LinkDirection(client, peer.name, peer.group, address, transport)
        is_back = destination.sender.peer is not None
        begin = destination.sender.begin_link(peer)
        destination.is_connected = True
        destination.connected_at = link.replication.now_us
        interval = spec.ack_conflation_interval // _NANOSECONDS
        link.send(replace(begin, client=client, ack_interval=interval))
        link.log_event("1F-0007" if is_back else "1F-0009", client)
        link.replication.events.notify(LinkEvent.CONNECT, destination.direction)

    def end(self) -> None:
        """End the direction: the link is closed."""
        destination = self._destination
        destination.sender.end_link()
        destination.is_connected = False
        destination.disconnected_at = self._link.replication.now_us
        destination.disconnects += 1

    def report_ended(self) -> None:
        """Log that the link is closed, and notify the watchers."""
        self._link.log_event("1F-0008", self._destination.direction.client)
        self._link.replication.events.notify(LinkEvent.DISCONNECT, self._destination.direction)

    def resume(self, frame: PositionResponse | DedupState) -> None:
        """Process the position of the destination, and start sending when it is complete.

        Raises:
            ReplicationProtocolError: the position is impossible.
        """
        sender = self._destination.sender
        resumed = (
            sender.resume(frame)
            if isinstance(frame, PositionResponse)
            else sender.process_dedup_state(frame)
        )
        if resumed is not None:
            self._log_resumed(resumed)
            self._update_progress()

    def _log_resumed(self, resumed: ResumePosition) -> None:
        log, client = self._link.log, self._destination.direction.client
        self._link.log_event("21-0002", client)
        if resumed.missing_range is not None:
            first, last = resumed.missing_range
            log.emit("1E-0007", client=client, first=first, last=last)

    def process_ack(self, ack: Ack) -> None:
        """Process an ack of the destination.

        Raises:
            ReplicationProtocolError: the ack is impossible.
        """
        destination, log = self._destination, self._link.log
        destination.sender.process_ack(ack)
        if log.enabled("12-1002"):
            log.emit(
                "12-1002",
                client=destination.direction.client,
                ack="publish ack",
                txid=ack.settled_txid,
            )
        self._update_progress()

    def _update_progress(self) -> None:
        """Update the state after progress of the destination."""
        destination, replication = self._destination, self._link.replication
        if destination.sender.is_resynchronized and not self._is_caught_up:
            self._is_caught_up = True
            self._link.log_event("21-0001", destination.direction.client)
            replication.events.notify(LinkEvent.RESYNC_COMPLETE, destination.direction)
        replication.update_settled()

    def send_next(self) -> bool:
        """Send the next batch, if there is one, and return whether there was."""
        link, destination = self._link, self._destination
        if link.elapsed() < self._next_read_s:
            return False
        try:
            frame = destination.sender.next_frame(link.replication.now_us, flush=self.is_flushing)
        except JournalUnreadableError as problem:
            self._next_read_s = link.elapsed() + RETRY_INTERVAL_S
            link.wake_after(RETRY_INTERVAL_S)
            link.log_problem("1D-0013", text=str(problem))
            return False
        self.is_flushing = False
        if destination.sender.unreported_skipped:
            self._log_skipped()
        if frame is None:
            # Entries that are not for the destination settle when examined: no ack follows.
            link.replication.update_settled()
            return False
        destination.bytes_out += link.send(frame, compress=destination.spec.compression is not None)
        return True

    def _log_skipped(self) -> None:
        unreported_skipped = self._destination.sender.unreported_skipped
        names = [_name_of(damaged) for damaged in unreported_skipped[:_MAX_NAMED]]
        if len(unreported_skipped) > _MAX_NAMED:
            names.append("...")
        self._link.log.emit(
            "1E-0021",
            client=self._destination.direction.client,
            count=len(unreported_skipped),
            entries="; ".join(names),
        )
        unreported_skipped.clear()


def _name_of(damaged: DamagedEntry) -> str:
    """Return a description of an entry that cannot be read."""
    if damaged.batch is None:
        return f"entry {damaged.txid}, with an unknown record"
    row = damaged.batch.rows[0]
    return f"entry {damaged.txid}, {row[CLIENT]}|{row[SEQUENCE]}| of {damaged.batch.topic.name}"
