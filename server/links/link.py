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

An instance that connects although there is a link already decides which stays (see `links`). The
one that it came to holds it in reserve (`SPARE`) until that is decided, and until it is sure that
the other end is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.journal import Topic
from server.links.admin_addresses import NOWHERE, AdminInterface, host_of, seen
from server.links.inward import Inward
from server.links.line import NEVER
from server.links.outward import Outward
from server.replication import (
    MOST_BEFORE_HELLO,
    MOST_IN_FRAME,
    Ack,
    Batch,
    Beat,
    Begin,
    Branch,
    Frame,
    FrameError,
    FrameReader,
    Hello,
    Knowledge,
    Owed,
    ProtocolError,
    Refused,
    Resume,
    Sent,
    encoded,
    peer_of,
)
from server.replication.frames import Word
from server.security.later import when_decided

if TYPE_CHECKING:
    from server.base.log import Log
    from server.links.comings import Comings
    from server.links.conflicts import Conflicts
    from server.links.gate import Gate
    from server.links.introduction import Introduction
    from server.links.line import Conduit, Turns
    from server.links.replication import Replication
    from server.replication import Peer, Receiver

BEAT_SECONDS: Final = 1.0
"""How often each end says that it is there."""

SILENCE_SECONDS: Final = 10.0
"""After how long without a word the other end is taken to be gone."""

GREETING_SECONDS: Final = 10.0
"""How long it may take to find out who is there."""

_MOST_HELD: Final = 1 << 20
"""Bytes that have come and wait for a turn, after which nothing more is read."""

_MOST_WORDS: Final = 256
"""Words that wait for the connection; more are lost."""


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

    @property
    def conflicts(self) -> Conflicts:
        """Says when two messages have one name."""

    @property
    def comings(self) -> Comings:
        """Says that links begin and end."""

    def after(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call once, later; returns what cancels that."""

    def meet(self, link: Link, hello: Hello) -> None:
        """The other end has said who it is."""

    def take_up(self, link: Link) -> bool:
        """The other end goes on with a link that was held in reserve; whether it begins now."""

    def ended(self, link: Link) -> None:
        """A link is over."""

    def hear(self, link: Link, word: Word) -> None:
        """The instance at the other end says something."""

    def tell_another(self, link: Link, before: str, *, is_empty: bool) -> None:
        """The instance at the other end is another one than before.

        Args:
            link: the link with it.
            before: the identity of the log that the one of its name had.
            is_empty: whether its log is.
        """

    def complain(self, message: str, who: str, *aspects: object, **fields: object) -> None:
        """Log something that may come again and again: now and then.

        Args:
            message: the id of the entry.
            who: the other end; its host, and its name if that is known, tell it from others.
            aspects: what makes it another thing to say, if it differs.
            fields: the values of the entry.
        """


class Stage(Enum):
    """How far a link has come."""

    GREETING = "greeting"
    SPARE = "spare"
    OPEN = "open"
    CLOSED = "closed"


class Shortfall(NamedTuple):
    """That a destination is not served over a connection of the instance that it is.

    Attributes:
        destination: its name.
        reason: what it wants, and the connection does not give.
    """

    destination: str
    reason: str


class Link:
    """One link.

    Args:
        host: keeps it.
        conduit: the connection.
        transport: name of the transport that the connection was made by.
        destination: the Destination that the connection was made for; None if it was accepted.
        reached_at: the host where the other end was reached; empty if the connection was accepted.
        gate: the transport; None if this instance made the connection. While it decides whether
            the other one is let in, nothing else is taken from the connection.
        outcome: told once whether the link has come to be.

    Attributes:
        conduit: see above.
        is_ours: whether this instance made the connection.
        gate: see above.
        destination: name of the destination that the link leads to.
        shortfall: why it does not lead to the one that is at the other end; None if it does, or
            none is.
        stage: how far it has come.
        greeted: when the other end was told who we are, as `Turns.elapsed` gives it.
        hello: what the other end has said.
        description: what it has said of its configuration.
        log_before: the identity of the log that the instance of its name had before, as long as
            that has to be said; else None.
    """

    def __init__(
        self,
        host: Host,
        conduit: Conduit,
        transport: str,
        *,
        destination: str | None = None,
        reached_at: str = "",
        gate: Gate | None = None,
        outcome: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.conduit: Final = conduit
        self.is_ours: Final = destination is not None
        self.gate: Final = gate
        self.destination = destination
        self.shortfall: Shortfall | None = None
        self.stage = Stage.GREETING
        self.hello: Hello | None = None
        self.description: Introduction | None = None
        self.log_before: str | None = None
        self._host = host
        self._transport = transport
        self._reached_at: Final = reached_at
        self._outcome: Callable[[bool], None] | None = outcome
        self._reader = FrameReader(MOST_BEFORE_HELLO)
        self._begun = self._heard = self.greeted = self.elapsed()
        self._outward: Outward | None = None
        self._inward: Inward | None = None
        self._is_queued = False
        self._is_woken = False  # while it was at work
        self._is_deciding = False  # whether the other end is let in
        self._is_paused = False
        self._words_waiting = 0  # said since the connection was ready last
        self._cancel_timer: Callable[[], None] | None = None
        self._due = NEVER  # when the timer ends

    # What the connection tells.

    def feed(self, data: bytes) -> None:
        """Take what has come over the connection; see `Intake.feed`."""
        if self.stage is Stage.CLOSED:
            return
        self._heard = self.elapsed()
        self._reader.feed(data)
        if not self._is_queued:
            # Acks come all the time: were turns short for them, publishers would get less done.
            self._is_queued = self._host.turns.serve(self, len(data), is_patient=True)
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

    @property
    def met(self) -> Hello:
        """What the other end has said, after it has."""
        assert self.hello is not None  # noqa: S101 - asked for by those that have met
        return self.hello

    @property
    def admin(self) -> AdminInterface:
        """Where the other end has its admin interface, as far as it has said anything."""
        if self.description is None:
            return NOWHERE
        return seen(self.description, self._reached_at or host_of(self.conduit.address))

    @property
    def is_proven(self) -> bool:
        """Whether the instance is the one that it calls itself, as far as it can be known."""
        return self.gate is None or self.gate.is_proven

    @property
    def is_for_both(self) -> bool:
        """Whether both ends send over it; who has connected does, and who accepted has said so."""
        return self.met.sends if self.is_ours else self.destination is not None

    # How it begins and ends.

    def greet(self, hello: Hello) -> None:
        """Say who we are."""
        self.greeted = self.elapsed()
        self.send(hello, compress=True)

    def reserve(self) -> None:
        """Hold it in reserve: there is another link, and the other end decides between them."""
        self.stage = Stage.SPARE

    def open(self) -> None:
        """Let it begin: everybody knows who is there."""
        self.stage = Stage.OPEN
        self._reader.most = MOST_IN_FRAME
        self._settle(came_to_be=True)
        if self.destination is not None:
            own = self.replication.destinations[self.destination]
            own.admin, own.trouble = self.admin, ""
            self._outward = Outward(self, own, self._peer, self.conduit.address, self._transport)

    def say(self, word: Word) -> None:
        """Say something that is not part of the log, unless much of that kind waits already."""
        if self.conduit.is_ready:
            self._words_waiting = 0
        if self.stage is Stage.OPEN and self._words_waiting < _MOST_WORDS:
            self._words_waiting += 1
            self.send(word)

    def refuse(self, reason: str) -> None:
        """Have nothing to do with the other end.

        Args:
            reason: for people; both ends log it.
        """
        self.complain("1E-0001", reason, reason=reason)
        self.send(Refused(reason))
        self.close()

    def close(self) -> None:
        """End it; what was sent leaves."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        if self._cancel_timer is not None:
            self._cancel_timer()
        directions = [one for one in (self._outward, self._inward) if one is not None]
        for direction in directions:
            direction.end()
        self.conduit.close()
        self._host.ended(self)
        self._settle(came_to_be=False)
        for direction in directions:
            direction.say_it_ended()

    def _settle(self, *, came_to_be: bool) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome(came_to_be)

    @property
    def _peer(self) -> Peer:
        runs = () if self.description is None else self.description.runs
        return peer_of(self.met)._replace(runs=runs)

    # What its directions ask for; see `Line`.

    @property
    def replication(self) -> Replication:
        """See `Line`."""
        return self._host.replication

    @property
    def log(self) -> Log:
        """See `Line`."""
        return self._host.log

    @property
    def conflicts(self) -> Conflicts:
        """See `Line`."""
        return self._host.conflicts

    @property
    def elapsed(self) -> Callable[[], float]:
        """See `Line`."""
        return self._host.turns.elapsed

    @property
    def is_ready(self) -> bool:
        """See `Line`."""
        return self.conduit.is_ready

    def send(self, frame: Sent, *, compress: bool = False) -> int:
        """See `Line`."""
        data = encoded(frame, compress=compress)
        self.conduit.send(*data)
        return sum(map(len, data))

    def go_on_in(self, seconds: float) -> None:
        """See `Line`."""
        due = self.elapsed() + seconds
        if self._cancel_timer is not None:
            if due >= self._due:
                return
            self._cancel_timer()
        self._due = due
        self._cancel_timer = self._host.after(seconds, self._time_is_over)

    def _time_is_over(self) -> None:
        self._cancel_timer = None
        self.wake()

    def tell(self, message: str, client: str) -> None:
        """See `Line`."""
        self._host.comings.tell(message, client)

    def complain(self, message: str, *aspects: object, **fields: object) -> None:
        """See `Line`."""
        if self.destination is not None and "reason" in fields:
            self.replication.destinations[self.destination].note_trouble(fields["reason"])
        self._host.complain(
            message,
            self.address,
            *aspects,
            instance=self.replication.instance,
            other=self.address,
            role=self._role,
            **fields,
        )

    @property
    def _role(self) -> str:
        """What the other end is to this instance, as its configuration calls it."""
        if self.destination is not None:
            return f"destination {self.destination}"
        return f"connected to transport {self._transport}"

    def _give_up(self, message: str, problem: str) -> None:
        """Close the link: there is no going on with it."""
        self.complain(message, problem, reason=problem)
        self.close()

    # Its time.

    def wake(self) -> None:
        """Go on soon: there may be something to send or to acknowledge."""
        self._is_woken = True
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
        if self._outward is not None:
            self._outward.is_flushing = True
        if self.is_ready:
            self.send(Beat())
        self.wake()

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return "" if self.hello is None else self.hello.instance, "replication"

    def step(self) -> bool:
        """Take and give until the slice is over; see `Sliced.step`."""
        self._is_queued = True  # or is at work, which is the same to whoever wakes it
        self._is_woken = False
        try:
            has_more = self.stage is not Stage.CLOSED and self._work()
        except (FrameError, ProtocolError) as problem:
            self.send(Refused(str(problem)))
            self._give_up("1E-0003", str(problem))
            return False
        except BaseException:  # a defect: it must not leave a link that does nothing any more
            self.close()
            raise
        self._is_queued = has_more = has_more or (self._is_woken and self.stage is Stage.OPEN)
        self._mind_reading()
        return has_more

    def _work(self) -> bool:
        turns = self._host.turns
        if self._inward is not None:
            self._inward.acknowledge()
        while True:
            has_taken = self._take_next()
            has_given = self.stage is Stage.OPEN and self.is_ready and self._give_next()
            if self.stage is Stage.CLOSED or not (has_taken or has_given):
                return False
            if turns.left(self.elapsed()) <= 0:
                return True

    def _give_next(self) -> bool:
        """Send what is to be sent next."""
        if self._inward is not None and self._inward.give():
            return True
        return self._outward is not None and self._outward.give()

    def _mind_reading(self) -> None:
        """Read as long as what comes can be dealt with."""
        if self.stage is Stage.CLOSED:
            return
        is_stalled = self._inward is not None and self._inward.is_stalled
        is_crowded = is_stalled or (self._is_queued and self._reader.held > _MOST_HELD)
        if is_crowded and not self._is_paused:
            self._is_paused = True
            self.conduit.pause()
        elif self._is_paused and not is_crowded:
            self._is_paused = False
            self._heard = self.elapsed()
            self.conduit.resume()

    # Frames that come.

    def _take_next(self) -> bool:
        """Deal with the next frame, if there is one and it is its time."""
        if self._is_deciding:
            return False
        if self._inward is not None and self._inward.is_stalled:
            return self._inward.go_on()
        frame = self._reader.next()
        if frame is None:
            return False
        self._take(frame)
        return True

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Refused):
            self.complain("1E-0002", frame.reason, reason=frame.reason)
            self.close()
            return
        if self.stage is Stage.GREETING:
            self._meet(frame)
            return
        if self.stage is Stage.SPARE and not self._host.take_up(self):
            return
        match frame:
            case Batch():
                self._destination_of(frame).take(frame)
            case Owed():
                self._destination_of(frame).owe(frame)
            case Ack():
                self._source_of(frame).acknowledge(frame)
            case Resume() | Knowledge():
                self._resume(frame)
            case Begin():
                self._begin(frame)
            case Word():
                self._host.hear(self, frame)
            case Hello():
                raise ProtocolError("says twice who it is")

    def _meet(self, frame: Frame) -> None:
        if not isinstance(frame, Hello):
            raise ProtocolError(f"says {type(frame).__name__} before who it is")
        if self.gate is None:
            self._host.meet(self, frame)
            return
        self._is_deciding = True
        when_decided(self.gate.admit(frame), partial(self._decided, frame))

    def _decided(self, hello: Hello, refusal: str | None) -> None:
        """The other end is let in, or not."""
        self._is_deciding = False
        if self.stage is not Stage.GREETING:
            return
        if refusal is not None:
            self.refuse(refusal)
            return
        self._host.meet(self, hello)
        self.wake()

    def _begin(self, frame: Begin) -> None:
        replication = self.replication
        if self._inward is not None:
            raise ProtocolError("asks twice where to go on")
        if replication.description.listens is None:
            raise ProtocolError(f"replicates to {replication.instance}, which takes nothing")
        gate = self.gate
        replication.permits.begin(self._peer.name, None if gate is None else gate.judge)
        branch = Branch() if self.description is None else replication.branch_of(self.description)
        self._say_what_is_gone(replication.receiver(self._peer.name), frame, branch)
        self._inward = Inward(
            self,
            self._peer,
            frame,
            self.conduit.address,
            self._transport,
            branch,
            tells_all=self._may_replicate_all,
        )
        self._see_whether_it_is_another(is_empty=frame.last < frame.first)

    def _say_what_is_gone(self, receiver: Receiver, frame: Begin, branch: Branch) -> None:
        names = {"instance": self.replication.instance, "other": self.address}
        if receiver.has_parted(frame, branch):
            self.log.emit("1E-0034", **names, txid=receiver.received)
        if branch.has_lost:
            self.log.emit("1E-0035", **names)

    @property
    def _may_replicate_all(self) -> bool:
        """Whether the other end may replicate everything here that is recorded."""
        gate, recorded = self.gate, self.replication.description.logged
        topics = (Topic(one.selection.message_type, one.selection.name) for one in recorded)
        return gate is None or all(map(gate.may_replicate, topics))

    def _resume(self, frame: Resume | Knowledge) -> None:
        self._source_of(frame).resume(frame)
        if isinstance(frame, Knowledge):
            self._see_whether_it_is_another(is_empty=not frame.had)

    def _see_whether_it_is_another(self, *, is_empty: bool) -> None:
        """It is known now whether the log of the other end is empty: say it if that is new."""
        before, self.log_before = self.log_before, None
        if before is not None:
            self._host.tell_another(self, before, is_empty=is_empty)

    def _source_of(self, frame: Frame) -> Outward:
        if self._outward is None:
            raise ProtocolError(f"says {type(frame).__name__}, and nothing is replicated to it")
        return self._outward

    def _destination_of(self, frame: Frame) -> Inward:
        if self._inward is None:
            raise ProtocolError(f"says {type(frame).__name__}, and has not asked where to go on")
        return self._inward
