"""The direction of a link in which this instance is the source: the peer is a destination.

Begin -> ... Resume, Knowledge <- ... batches -> ... Acks <-
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.replication.core import PositionResponse
from server.replication.links.interfaces import NEVER, RETRY_SECONDS
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
        line: the link.
        own: the destination.
        peer: the instance that is connected.
        address: of the peer.
        transport: name of the transport that the connection was made by.

    Attributes:
        is_flushing: whether to send the destination the position up to which the log has been read,
            even if no entries go there; to be set once a second.
    """

    def __init__(
        self,
        line: ReplicationLink,
        own: ReplicationDestination,
        peer: PeerInstance,
        address: str,
        transport: str,
    ) -> None:
        self.is_flushing = False
        self._line: Final = line
        self._own: Final = own
        self._is_read_from = NEVER  # time of the next attempt, after the log could not be read
        self._is_caught_up = False
        spec = own.spec
        kind = spec.transports[0].type if spec.transports else "amps-replication"
        source = line.replication.instance
        client = link_name(source, spec.name, spec.group, spec.sync_type, kind)
        own.way = LinkDirection(client, peer.name, peer.group, address, transport)
        is_back = own.sender.peer is not None
        begin = own.sender.connected(peer)
        own.is_connected = True
        own.connected_at = line.replication.now
        interval = spec.ack_conflation_interval // _NANOSECONDS
        line.send(replace(begin, client=client, ack_interval=interval))
        line.tell("1F-0007" if is_back else "1F-0009", client)
        line.replication.events.tell(LinkEvent.CONNECT, own.way)

    def end(self) -> None:
        """Note that the link is closed."""
        own = self._own
        own.sender.disconnected()
        own.is_connected = False
        own.disconnected_at = self._line.replication.now
        own.disconnects += 1

    def say_it_ended(self) -> None:
        """Log that the link is closed, and notify the watchers."""
        self._line.tell("1F-0008", self._own.way.client)
        self._line.replication.events.tell(LinkEvent.DISCONNECT, self._own.way)

    def resume(self, frame: PositionResponse | DedupState) -> None:
        """Take the position of the destination, and start sending when it is complete.

        Raises:
            ReplicationProtocolError: the position is impossible.
        """
        sender = self._own.sender
        resumed = (
            sender.resume(frame) if isinstance(frame, PositionResponse) else sender.learn(frame)
        )
        if resumed is not None:
            self._say_it_resumes(resumed)
            self._look()

    def _say_it_resumes(self, resumed: ResumePosition) -> None:
        log, client = self._line.log, self._own.way.client
        self._line.tell("21-0002", client)
        if resumed.missing is not None:
            first, last = resumed.missing
            log.emit("1E-0007", client=client, first=first, last=last)

    def acknowledge(self, ack: Ack) -> None:
        """Process an ack of the destination.

        Raises:
            ReplicationProtocolError: the ack is impossible.
        """
        own, log = self._own, self._line.log
        own.sender.acknowledge(ack)
        if log.enabled("12-1002"):
            log.emit("12-1002", client=own.way.client, ack="publish ack", txid=ack.settled)
        self._look()

    def _look(self) -> None:
        """Update the state after progress of the destination."""
        own, replication = self._own, self._line.replication
        if own.sender.resynchronized and not self._is_caught_up:
            self._is_caught_up = True
            self._line.tell("21-0001", own.way.client)
            replication.events.tell(LinkEvent.RESYNC_COMPLETE, own.way)
        replication.acknowledged()

    def give(self) -> bool:
        """Send the next batch, if there is one, and return whether there was."""
        line, own = self._line, self._own
        if line.elapsed() < self._is_read_from:
            return False
        try:
            frame = own.sender.pull(line.replication.now, flush=self.is_flushing)
        except JournalUnreadableError as problem:
            self._is_read_from = line.elapsed() + RETRY_SECONDS
            line.go_on_in(RETRY_SECONDS)
            line.complain("1D-0013", text=str(problem))
            return False
        self.is_flushing = False
        if own.sender.left_out:
            self._say_what_is_left_out()
        if frame is None:
            return False
        own.bytes_out += line.send(frame, compress=own.spec.compression is not None)
        return True

    def _say_what_is_left_out(self) -> None:
        left_out = self._own.sender.left_out
        names = [_name_of(one) for one in left_out[:_MAX_NAMED]]
        if len(left_out) > _MAX_NAMED:
            names.append("...")
        self._line.log.emit(
            "1E-0021",
            client=self._own.way.client,
            count=len(left_out),
            entries="; ".join(names),
        )
        left_out.clear()


def _name_of(unread: DamagedEntry) -> str:
    """Return a description of an entry that cannot be read."""
    if unread.run is None:
        return f"entry {unread.txid}, of which nothing is known"
    row = unread.run.rows[0]
    return f"entry {unread.txid}, {row[CLIENT]}|{row[SEQUENCE]}| of {unread.run.topic.name}"
