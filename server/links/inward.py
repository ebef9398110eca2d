"""The direction of a link in which this instance is the destination: the other one is the source.

    Begin <- ... Resume, Knowledge -> ... batches <- ... Acks ->

An ack says all there is to say, so that one is made when it can be sent, and no more than one in
the interval that the source asks for. The first one after a pause does not wait, nor does one for
so much that the source would come to the end of its window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.links.events import LinkEvent, Way
from server.links.line import NEVER, RETRY_SECONDS

if TYPE_CHECKING:
    from server.links.line import Line
    from server.replication import Batch, Begin, Branch, Owed, Peer, Taken

_LOOK_SECONDS: Final = 0.001
"""How often it is looked what can be acknowledged, at most."""

_MOST_UNACKNOWLEDGED: Final = 2 << 20
"""Bytes taken after which an ack does not wait for its time: the source's window is small."""

_MOST_CLIENT: Final = 1024
_MICROSECONDS: Final = 1_000_000


class Inward:
    """What comes from a source over a link. It begins when it is made.

    Args:
        line: the link.
        peer: the source.
        frame: what it asks.
        address: of the other end.
        transport: name of the transport that the connection was made by.
        branch: which entries are gone from the log of either instance.
        tells_all: whether the source may be told of all publishers.
    """

    def __init__(
        self,
        line: Line,
        peer: Peer,
        frame: Begin,
        address: str,
        transport: str,
        branch: Branch,
        *,
        tells_all: bool,
    ) -> None:
        self._line: Final = line
        replication = line.replication
        client = frame.client
        if not client.startswith(f"{peer.name}!") or len(client) > _MOST_CLIENT:
            client = f"{peer.name}!{replication.instance}"
        self._way: Final = Way(client, peer.name, peer.group, address, transport)
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
        """The link is closed."""
        self._receiver.disconnected()
        self._answer = None

    def say_it_ended(self) -> None:
        """Tell whoever wants to know that the link has been closed."""
        self._line.tell("1F-0008", self._way.client)
        self._line.replication.events.tell(LinkEvent.DISCONNECT_INCOMING, self._way)

    # What comes.

    @property
    def is_stalled(self) -> bool:
        """Whether the log has not taken all of a batch: nothing may be taken before `go_on`."""
        return self._receiver.is_stalled

    def take(self, batch: Batch) -> None:
        """Take in a batch.

        Raises:
            ProtocolError: it is not what has to come next, or makes no sense.
        """
        self._unacknowledged += batch.size
        self._line.replication.received.add(batch.entries, batch.size)
        self._note(self._receiver.take(batch))

    def owe(self, frame: Owed) -> None:
        """The source says what it has left out.

        Raises:
            ProtocolError: that makes no sense.
        """
        self._receiver.owe(frame)

    def go_on(self) -> bool:
        """Go on with a batch of which the log has not taken all; whether that is done."""
        self._note(self._receiver.go_on())
        if self.is_stalled:
            self._line.go_on_in(RETRY_SECONDS)
            return False
        return True

    def _note(self, taken: Taken) -> None:
        if taken.conflicts:
            self._line.conflicts.note(self._way.peer, taken.conflicts)

    # What goes.

    def give(self) -> bool:
        """Answer the source, which asks where to go on; whether there was something to say."""
        answer = self._answer
        if answer is None:
            return False
        self._answer = next(self._answers, None)  # what it does last belongs to the one before
        self._line.send(answer)
        return True

    def acknowledge(self) -> None:
        """Tell the source what is stored here, if it is time for that."""
        line = self._line
        if self._answer is not None or not line.is_ready:
            return
        now, replication = line.elapsed(), line.replication
        is_much = self._unacknowledged >= _MOST_UNACKNOWLEDGED
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
