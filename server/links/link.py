"""One link: what is said over a connection between two instances, without the connection.

    the one that connects:  Hello ->            Begin ->                   Batch -> ...
    the one that accepts:          <- Hello, Begin      <- Resume, Knowledge      <- Ack

The instance that connects speaks first, so that nobody is told anything of an instance before it is
known who asks. Each direction begins with the `Begin` of the source, in which there is, too, how
both call that direction, and how often the source wants to hear of what is stored.

Frames are taken one after the other, and batches made, in slices of the engine's thread. What waits
is bounded: a frame is taken from the bytes that have come when the one before has been dealt with,
and nothing more is read while the log takes no entries; no batch is made while the connection still
has the one before, and no more than a `Sender` has room for.

An instance that connects although there is a link already keeps one of the two (see `links`). The
one that it came to holds it in reserve (`SPARE`) until that is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from server.base.slices import Sliced
from server.journal import JournalUnreadable
from server.links.events import LinkEvent, Way, link_name
from server.replication import (
    MOST_BEFORE_HELLO,
    MOST_IN_FRAME,
    Ack,
    Batch,
    Beat,
    Begin,
    Frame,
    FrameError,
    FrameReader,
    Hello,
    Knowledge,
    ProtocolError,
    Refused,
    Resume,
    Resumed,
    Taken,
    Word,
    encode,
    peer_of,
)

if TYPE_CHECKING:
    from server.base.log import Log
    from server.links.replication import OwnDestination, Replication
    from server.replication import Peer, Receiver

BEAT_SECONDS: Final = 1.0
"""How often each end says that it is there."""

SILENCE_SECONDS: Final = 10.0
"""After how long without a word the other end is taken to be gone."""

GREETING_SECONDS: Final = 10.0
"""How long it may take to find out who is there."""

_RETRY_SECONDS: Final = 0.25
"""Until the log is looked at again that could not be read, or took nothing."""

_LOOK_SECONDS: Final = 0.001
"""How often it is looked what can be acknowledged, at most."""

_MOST_HELD: Final = 1 << 20
"""Bytes that have come and wait for a turn, after which nothing more is read."""

_MOST_UNACKNOWLEDGED: Final = 2 << 20
"""Bytes taken after which an ack does not wait for its time: the source's window is small."""

_MOST_CLIENT: Final = 1024
_MOST_WORDS: Final = 64
_MICROSECONDS: Final = 1_000_000
_NEVER: Final = float("-inf")


class Turns(Protocol):
    """Shares out the time of the engine's thread; see server/core/turns.py."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds since some moment, never going back."""

    def left(self, now: float) -> float:
        """Seconds that are left of the slice at hand."""

    def serve(self, connection: Sliced, size: int) -> bool:
        """Give a slice for what has just been read; whether there is more to do, in turns."""

    def queue(self, work: Sliced) -> None:
        """Do some work in turns with other work."""


class Conduit(Protocol):
    """The connection that a link goes over."""

    @property
    def address(self) -> str:
        """Of the other end, for people."""

    @property
    def is_ready(self) -> bool:
        """Whether it has sent nearly all that it was given."""

    def send(self, data: bytes) -> None:
        """Send bytes, now or when the other end is ready for them."""

    def pause(self) -> None:
        """Read nothing more, until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Close the connection when what was given has left, or soon."""


class Host(Protocol):
    """Who keeps the links of an instance, as one of them sees it."""

    @property
    def replication(self) -> Replication:
        """What the instance has of replication."""

    @property
    def turns(self) -> Turns:
        """Shares out the engine's time."""

    @property
    def log(self) -> Log:
        """Where is written what happens."""

    def after(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call once, later; returns what cancels that."""

    def meet(self, link: Link, hello: Hello) -> None:
        """The other end has said who it is."""

    def take_up(self, link: Link) -> None:
        """The other end goes on with a link that was held in reserve."""

    def ended(self, link: Link) -> None:
        """A link is over."""

    def heard(self, link: Link, word: Word) -> None:
        """A word has come, for this instance or for another one."""

    def complain(self, message: str, who: str, /, **fields: object) -> None:
        """Log something that may come again and again: now and then.

        Args:
            message: the id of the entry.
            who: the other end; its host, and its name if that is known, tell it from others.
            fields: the values of the entry.
        """


class Stage(Enum):
    """How far a link has come."""

    GREETING = "greeting"
    SPARE = "spare"
    OPEN = "open"
    CLOSED = "closed"


class Link:
    """One link.

    Args:
        host: keeps it.
        conduit: the connection.
        transport: name of the transport that the connection was made by; may be empty.
        destination: the Destination that the connection was made for; None if it was accepted.
        admit: says why somebody who connects is not let in, by user and password; None if they are.
        outcome: told once whether the link has come to be.

    Attributes:
        conduit: see above.
        is_ours: whether this instance made the connection.
        admit: see above.
        destination: name of the destination that the link leads to.
        stage: how far it has come.
        hello: what the other end has said.
    """

    def __init__(
        self,
        host: Host,
        conduit: Conduit,
        transport: str,
        *,
        destination: str | None = None,
        admit: Callable[[str, str], str | None] = lambda _user, _password: None,
        outcome: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.conduit: Final = conduit
        self.is_ours: Final = destination is not None
        self.admit: Final = admit
        self.destination = destination
        self.stage = Stage.GREETING
        self.hello: Hello | None = None
        self._host = host
        self._transport = transport
        self._outcome: Callable[[bool], None] | None = outcome
        self._replication = host.replication
        self._elapsed = host.turns.elapsed
        self._reader = FrameReader(MOST_BEFORE_HELLO)
        self._begun = self._heard = self._elapsed()
        self._is_queued = False
        self._is_paused = False
        # As a source.
        self._own: OwnDestination | None = None
        self._is_read_from = _NEVER  # the log, when it could not be read
        self._is_flushing = False
        self._is_caught_up = False
        # As a destination.
        self._receiver: Receiver | None = None
        self._incoming: Way | None = None
        self._answers: Iterator[Resume | Knowledge] | None = None
        self._answer: Resume | Knowledge | None = None
        self._ack_interval = 0.0
        self._acked = self._looked = _NEVER
        self._unacknowledged = 0
        self._words_waiting = 0  # since the connection was ready last
        # What cancels the next look at all this, and when that is.
        self._timer: Callable[[], None] | None = None
        self._due = _NEVER

    # What the connection tells.

    def feed(self, data: bytes) -> None:
        """Take what has come over the connection; see `Intake.feed`."""
        if self.stage is Stage.CLOSED:
            return
        self._heard = self._elapsed()
        self._reader.feed(data)
        if not self._is_queued:
            self._is_queued = self._host.turns.serve(self, len(data))
        self._mind_reading()

    def is_writable(self) -> None:
        """Take note that the connection takes more again."""
        self.wake()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        if self.stage is Stage.GREETING and self.is_ours:
            self._give_up("1E-0004", "the connection was closed before anything was said")
        self.close()

    @property
    def held(self) -> int:
        """Bytes that have come and wait, most of the time for the rest of their frame."""
        return self._reader.held

    @property
    def address(self) -> str:
        """Of the other end, with its name if that is known."""
        address = self.conduit.address
        return f"{self.hello.instance} at {address}" if self.hello is not None else address

    # How it begins and ends.

    def greet(self, hello: Hello) -> None:
        """Say who we are."""
        self._send(hello, compress=True)

    def reserve(self) -> None:
        """Hold it in reserve: there is another link, and the other end decides between them."""
        self.stage = Stage.SPARE

    def open(self) -> None:
        """Let it begin: everybody knows who is there."""
        self.stage = Stage.OPEN
        self._reader.most = MOST_IN_FRAME
        self._settle(came_to_be=True)
        if self.destination is not None:
            self.lead_to(self.destination)

    def lead_to(self, destination: str) -> None:
        """Send to a destination: the instance at the other end is the one that it stands for."""
        replication, peer = self._replication, self._peer
        self.destination = destination
        own = self._own = replication.destinations[destination]
        spec = own.spec
        transport = spec.transports[0].type if spec.transports else "amps-replication"
        client = link_name(replication.instance, spec.name, spec.group, spec.sync_type, transport)
        own.way = Way(client, peer.name, peer.group, self.conduit.address, self._transport)
        is_back = own.sender.peer is not None
        begin = own.sender.connected(peer)
        own.is_connected = True
        interval = spec.ack_conflation_interval // 1000
        self._send(replace(begin, client=client, ack_interval=interval))
        self._host.log.emit("1F-0007" if is_back else "1F-0009", client=client)
        replication.events.tell(LinkEvent.CONNECT, own.way)

    def refuse(self, reason: str) -> None:
        """Have nothing to do with the other end.

        Args:
            reason: for people; both ends log it.
        """
        self._host.complain("1E-0001", self.address, other=self.address, reason=reason)
        self._send(Refused(reason))
        self.close()

    def close(self) -> None:
        """End it; what was sent leaves."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        if self._timer is not None:
            self._timer()
        self._answers = self._answer = None
        own, receiver = self._own, self._receiver
        if own is not None:
            own.sender.disconnected()
            own.is_connected = False
        if receiver is not None:
            receiver.disconnected()
        self.conduit.close()
        self._host.ended(self)
        self._settle(came_to_be=False)
        if own is not None:
            self._host.log.emit("1F-0008", client=own.way.client)
            self._replication.events.tell(LinkEvent.DISCONNECT, own.way)
        if self._incoming is not None:
            self._host.log.emit("1F-0008", client=self._incoming.client)
            self._replication.events.tell(LinkEvent.DISCONNECT_INCOMING, self._incoming)

    def _settle(self, *, came_to_be: bool) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome(came_to_be)

    @property
    def _peer(self) -> Peer:
        assert self.hello is not None  # noqa: S101 - asked for by links that are open
        return peer_of(self.hello)

    # Its time.

    def wake(self) -> None:
        """Go on soon: there may be something to send or to acknowledge."""
        if self.stage is Stage.OPEN and not self._is_queued:
            self._is_queued = True
            self._host.turns.queue(self)

    def tick(self, now: float, away: float) -> None:
        """Do what time does; to be called about every `BEAT_SECONDS`.

        Args:
            now: what `Turns.elapsed` gives.
            away: seconds for which this process has done nothing, as far as is known.
        """
        self._heard += away
        if self.stage in (Stage.GREETING, Stage.SPARE):
            if now - self._begun - away > GREETING_SECONDS:
                self._give_up("1E-0004", f"no greeting within {GREETING_SECONDS:.0f} seconds")
            return
        if self._is_paused:
            self._heard = now
        elif now - self._heard > SILENCE_SECONDS:
            self._give_up("1E-0004", f"nothing has been heard for {SILENCE_SECONDS:.0f} seconds")
            return
        self._is_flushing = True
        if self.conduit.is_ready:
            self._send(Beat())
        self.wake()

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return "" if self.hello is None else self.hello.instance, "replication"

    def step(self) -> bool:
        """Take and give until the slice is over; see `Sliced.step`."""
        try:
            has_more = self.stage is not Stage.CLOSED and self._work()
        except (FrameError, ProtocolError) as problem:
            self._send(Refused(str(problem)))
            self._give_up("1E-0003", str(problem))
            return False
        except BaseException:  # a defect: it must not leave a link that does nothing any more
            self.close()
            raise
        self._is_queued = has_more
        self._mind_reading()
        return has_more

    def _work(self) -> bool:
        turns = self._host.turns
        self._acknowledge()
        while True:
            has_taken = self._take_next()
            has_given = self.stage is Stage.OPEN and self._give_next()
            if self.stage is Stage.CLOSED or not (has_taken or has_given):
                return False
            if turns.left(self._elapsed()) <= 0:
                return True

    def _mind_reading(self) -> None:
        """Read as long as what comes can be dealt with."""
        if self.stage is Stage.CLOSED:
            return
        is_crowded = self._is_stalled or (self._is_queued and self._reader.held > _MOST_HELD)
        if is_crowded and not self._is_paused:
            self._is_paused = True
            self.conduit.pause()
        elif self._is_paused and not is_crowded:
            self._is_paused = False
            self._heard = self._elapsed()
            self.conduit.resume()

    def _give_up(self, message: str, problem: str) -> None:
        """Close the link: there is no going on with it."""
        self._host.complain(message, self.address, other=self.address, reason=problem)
        self.close()

    def _send(self, frame: Frame, *, compress: bool = False) -> None:
        self.conduit.send(encode(frame, compress=compress))

    def say(self, word: Word) -> None:
        """Send a word, unless many wait already: it may get lost."""
        if self.conduit.is_ready:
            self._words_waiting = 0
        if self.stage is Stage.OPEN and self._words_waiting < _MOST_WORDS:
            self._words_waiting += 1
            self._send(word)

    def _later(self, seconds: float) -> None:
        """Go on after some time, or before."""
        due = self._elapsed() + seconds
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer()
        self._due = due
        self._timer = self._host.after(seconds, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer = None
        self.wake()

    # Frames that come.

    @property
    def _is_stalled(self) -> bool:
        return self._receiver is not None and self._receiver.is_stalled

    def _take_next(self) -> bool:
        """Deal with the next frame, if there is one and it is its time."""
        receiver = self._receiver
        if receiver is not None and receiver.is_stalled:
            self._note(receiver.go_on())
            if receiver.is_stalled:
                self._later(_RETRY_SECONDS)
                return False
            return True
        frame = self._reader.next()
        if frame is None:
            return False
        self._take(frame)
        return True

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Refused):
            self._host.complain("1E-0002", self.address, other=self.address, reason=frame.reason)
            self.close()
            return
        if self.stage is Stage.GREETING:
            if not isinstance(frame, Hello):
                raise ProtocolError(f"says {type(frame).__name__} before who it is")
            self._host.meet(self, frame)
            return
        if self.stage is Stage.SPARE:
            self._host.take_up(self)
        match frame:
            case Batch():
                self._take_batch(frame)
            case Ack():
                self._take_ack(frame)
            case Begin():
                self._begin(frame)
            case Resume() | Knowledge():
                self._resume(frame)
            case Word():
                self._host.heard(self, frame)
            case Hello():
                raise ProtocolError("says twice who it is")

    def _begin(self, frame: Begin) -> None:
        if self._receiver is not None:
            raise ProtocolError("asks twice where to go on")
        replication, peer = self._replication, self._peer
        client = frame.client
        if not client.startswith(f"{peer.name}!") or len(client) > _MOST_CLIENT:
            client = f"{peer.name}!{replication.instance}"
        self._incoming = Way(client, peer.name, peer.group, self.conduit.address, self._transport)
        receiver = self._receiver = replication.receiver(peer.name)
        receiver.disconnected()
        self._ack_interval = frame.ack_interval / _MICROSECONDS
        self._answers = receiver.begin(peer, frame, replication.acknowledgement.settled)
        self._answer = next(self._answers, None)
        self._host.log.emit("1F-0006", client=client)
        replication.events.tell(LinkEvent.CONNECT_INCOMING, self._incoming)

    def _resume(self, frame: Resume | Knowledge) -> None:
        own = self._own_of(frame)
        sender = own.sender
        resumed = sender.resume(frame) if isinstance(frame, Resume) else sender.learn(frame)
        if resumed is not None:
            self._resumed(own, resumed)

    def _resumed(self, own: OwnDestination, resumed: Resumed) -> None:
        log, client = self._host.log, own.way.client
        log.emit("21-0002", client=client)
        if resumed.missing is not None:
            first, last = resumed.missing
            log.emit("1E-0007", client=client, first=first, last=last)
        self._look_at(own)

    def _take_ack(self, frame: Ack) -> None:
        own = self._own_of(frame)
        own.sender.acknowledge(frame)
        if self._host.log.enabled("12-1002"):
            self._host.log.emit(
                "12-1002", client=own.way.client, ack="publish ack", txid=frame.settled
            )
        self._look_at(own)

    def _look_at(self, own: OwnDestination) -> None:
        """See what has changed, now that the destination has got further."""
        if own.sender.resynchronized and not self._is_caught_up:
            self._is_caught_up = True
            self._host.log.emit("21-0001", client=own.way.client)
            self._replication.events.tell(LinkEvent.RESYNC_COMPLETE, own.way)
        self._replication.acknowledged()

    def _own_of(self, frame: Frame) -> OwnDestination:
        if self._own is None:
            raise ProtocolError(f"says {type(frame).__name__}, and nothing is replicated to it")
        return self._own

    def _take_batch(self, batch: Batch) -> None:
        receiver = self._receiver
        if receiver is None:
            raise ProtocolError("sends entries, and has not asked where to go on")
        self._unacknowledged += sum(sum(map(len, run.data)) for run in batch.runs)
        self._note(receiver.take(batch))

    def _note(self, taken: Taken) -> None:
        for conflict in taken.conflicts:
            self._host.complain(
                "1E-0006",
                self.address,
                other=self.address,
                topic=conflict.topic.name,
                identity=conflict.client,
                sequence=conflict.sequence,
            )

    # Frames that go.

    def _acknowledge(self) -> None:
        """Tell the source what is stored here, as often as it wants to hear that."""
        receiver = self._receiver
        if receiver is None or self._answer is not None or not self.conduit.is_ready:
            return
        now, replication = self._elapsed(), self._replication
        is_much = self._unacknowledged >= _MOST_UNACKNOWLEDGED
        waits = max(
            self._looked + _LOOK_SECONDS, 0 if is_much else self._acked + self._ack_interval
        )
        if waits > now:
            self._later(waits - now)
            return
        self._looked = now
        ack = receiver.acknowledge(replication.durable, replication.acknowledgement.is_settled)
        if ack is not None:
            self._acked = now
            self._unacknowledged = 0
            self._send(ack)

    def _give_next(self) -> bool:
        """Send what is to be sent next, if the connection is ready for it."""
        if not self.conduit.is_ready:
            return False
        answer = self._answer
        if answer is not None and self._answers is not None:
            self._answer = next(self._answers, None)  # what it does last belongs to the one before
            self._send(answer)
            return True
        return self._own is not None and self._give_batch(self._own)

    def _give_batch(self, own: OwnDestination) -> bool:
        if self._elapsed() < self._is_read_from:
            return False
        try:
            batch = own.sender.pull(self._replication.now, flush=self._is_flushing)
        except JournalUnreadable as problem:
            self._is_read_from = self._elapsed() + _RETRY_SECONDS
            self._later(_RETRY_SECONDS)
            self._host.complain("1D-0013", "", text=str(problem))
            return False
        self._is_flushing = False
        if batch is None:
            return False
        self._send(batch, compress=own.spec.compression is not None)
        return True
