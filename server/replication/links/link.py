"""One link: the protocol between two instances over a connection, without the connection.

    connects:  Hello ->               PositionRequest ->                  ReplicationBatch -> ...
    accepts:         <- Hello, PositionRequest      <- PositionResponse, DedupState     <- Ack

The connecting instance speaks first, so that the accepting one discloses nothing before it knows
the peer. Each direction begins with the `PositionRequest` of the source. `PositionRequest` also
carries the name that both ends use for that direction, and the interval at which the source wants
acks.

Frames are executed in order, and batches are made, in time slices of the engine's thread. Buffers
are bounded: a frame is parsed from the received bytes when the one before has been executed, and
reading stops while the log accepts no entries. No batch is made while the connection still has the
previous one, nor beyond the window of a `ReplicationSender`.

If an instance connects although there is a link already, that instance decides which one stays (see
`links`). The accepting instance holds the new link in reserve (`SPARE`) until that is decided, and
until it is sure that the peer is still alive.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from server.replication.core import (
    MAX_FRAME_SIZE,
    MAX_FRAME_SIZE_BEFORE_HELLO,
    Ack,
    DedupState,
    HeartbeatFrame,
    Hello,
    HelloRefusal,
    InboundFrame,
    LogBranch,
    OutboundFrame,
    PositionRequest,
    PositionResponse,
    ReplicationBatch,
    ReplicationFrameError,
    ReplicationFrameReader,
    ReplicationProtocolError,
    SkippedRanges,
    encode_pieces,
    peer_of,
)
from server.replication.core.frames import PeerMessage
from server.replication.links.admin_addresses import (
    NO_ADMIN_LOCATION,
    AdminLocation,
    host_of,
    peer_admin_location,
)
from server.replication.links.inbound import InboundReplication
from server.replication.links.interfaces import NEVER
from server.replication.links.outbound import OutboundReplication
from server.security.deferred import on_answer
from server.storage.journal import JournalTopic

if TYPE_CHECKING:
    from server.replication.core import PeerInstance, ReplicationReceiver
    from server.replication.links.admission import LinkAdmission
    from server.replication.links.duplicate_conflicts import DuplicateConflictLog
    from server.replication.links.interfaces import LinkConnection
    from server.replication.links.introduction import PeerIntroduction
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationState
    from server.util.log_protocol import ServerLog

HEARTBEAT_INTERVAL_S: Final = 1.0
"""Interval of the heartbeats that each end sends."""

HEARTBEAT_TIMEOUT_S: Final = 10.0
"""Silence after which the peer is considered gone."""

LINK_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout for the peer to identify itself."""

_MAX_HELD: Final = 1 << 20
"""Bytes received and waiting for a time slice, above which reading pauses."""

_MAX_WORDS: Final = 256
"""Messages (`PeerMessage`) that may wait for the connection; further ones are dropped."""


class LinkStage(Enum):
    """The state of a link."""

    GREETING = "greeting"
    SPARE = "spare"
    OPEN = "open"
    CLOSED = "closed"


class Shortfall(NamedTuple):
    """The reason why a destination is not served over the connection that its instance has made.

    Attributes:
        destination: its name.
        reason: the requirement of the destination that the connection does not meet.
    """

    destination: str
    reason: str


class ReplicationLink:
    """One link.

    Args:
        host: the owner of the link.
        link_connection: the connection.
        transport: name of the transport that the connection was made by.
        destination: the Destination that the connection was made for; None if it was accepted.
        reached_at: the host where the peer was reached; empty if the connection was accepted.
        gate: the transport; None if this instance made the connection. While it decides whether to
            admit the peer, no further frames are executed.
        outcome: called once with whether the link was established.

    Attributes:
        link_connection: see above.
        is_ours: whether this instance made the connection.
        gate: see above.
        destination: name of the destination that the link leads to.
        shortfall: the reason why the link does not serve the destination that the peer is; None if
            it does, or if the peer is no destination.
        stage: the state of the link.
        greeted: time of sending our `Hello`, as `Scheduler.elapsed` gives it.
        hello: the `Hello` of the peer.
        description: the configuration that the peer has sent.
        log_before: the identity of the log that the instance of this name had before, until that
            is reported; else None.
    """

    def __init__(
        self,
        host: LinkRegistry,
        link_connection: LinkConnection,
        transport: str,
        *,
        destination: str | None = None,
        reached_at: str = "",
        gate: LinkAdmission | None = None,
        outcome: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.link_connection: Final = link_connection
        self.is_ours: Final = destination is not None
        self.gate: Final = gate
        self.destination = destination
        self.shortfall: Shortfall | None = None
        self.stage = LinkStage.GREETING
        self.hello: Hello | None = None
        self.description: PeerIntroduction | None = None
        self.log_before: str | None = None
        self._host = host
        self._transport = transport
        self._reached_at: Final = reached_at
        self._outcome: Callable[[bool], None] | None = outcome
        self._reader = ReplicationFrameReader(MAX_FRAME_SIZE_BEFORE_HELLO)
        self._begun = self._heard = self.greeted = self.elapsed()
        self._outward: OutboundReplication | None = None
        self._inward: InboundReplication | None = None
        self._is_queued = False
        self._is_woken = False  # during the current step
        self._is_deciding = False  # the gate is deciding whether to admit the peer
        self._is_paused = False
        self._words_waiting = 0  # sent since the connection was ready last
        self._cancel_timer: Callable[[], None] | None = None
        self._due = NEVER  # expiry of the timer

    # Events of the connection.

    def feed(self, data: bytes) -> None:
        """Buffer bytes received over the connection; see `SessionInput.feed`."""
        if self.stage is LinkStage.CLOSED:
            return
        self._heard = self.elapsed()
        self._reader.feed(data)
        if not self._is_queued:
            # Acks come all the time: with short slices for them, publishers would get less done.
            self._is_queued = self._host.turns.serve(self, len(data), is_patient=True)
        self._mind_reading()

    def is_writable(self) -> None:
        """Note that the connection is writable again."""
        self.wake()

    def lost(self) -> None:
        """Note that the connection is lost."""
        if self.stage is LinkStage.GREETING and self.is_ours:
            self._give_up("1E-0004", "the connection was closed before anything was said")
        self.close()

    @property
    def held(self) -> int:
        """Number of received bytes not parsed yet, usually the start of an incomplete frame."""
        return self._reader.held

    @property
    def address(self) -> str:
        """Address of the peer, with its name if known."""
        address = self.link_connection.address
        return f"{self.hello.instance} at {address}" if self.hello is not None else address

    @property
    def met(self) -> Hello:
        """The `Hello` of the peer, once received."""
        assert self.hello is not None  # noqa: S101 - used after the `Hello` only
        return self.hello

    @property
    def admin(self) -> AdminLocation:
        """Address of the peer's admin interface, as far as its `Hello` has given it."""
        if self.description is None:
            return NO_ADMIN_LOCATION
        return peer_admin_location(
            self.description, self._reached_at or host_of(self.link_connection.address)
        )

    @property
    def is_proven(self) -> bool:
        """True if the peer's identity is verified, as far as it can be."""
        return self.gate is None or self.gate.is_proven

    @property
    def is_for_both(self) -> bool:
        """True if both ends send over it.

        The connecting instance does; the accepting instance has said so in its `Hello`.
        """
        return self.met.sends if self.is_ours else self.destination is not None

    # Opening and closing.

    def greet(self, hello: Hello) -> None:
        """Send our `Hello`."""
        self.greeted = self.elapsed()
        self.send(hello, compress=True)

    def reserve(self) -> None:
        """Hold the link in reserve: there is another one, and the peer decides between them."""
        self.stage = LinkStage.SPARE

    def open(self) -> None:
        """Open the link: both ends have identified each other."""
        self.stage = LinkStage.OPEN
        self._reader.most = MAX_FRAME_SIZE
        self._settle(came_to_be=True)
        if self.destination is not None:
            own = self.replication.destinations[self.destination]
            own.admin, own.trouble = self.admin, ""
            self._outward = OutboundReplication(
                self, own, self._peer, self.link_connection.address, self._transport
            )

    def say(self, word: PeerMessage) -> None:
        """Send a message that is not part of the log; drop it if too many of them wait already."""
        if self.link_connection.is_ready:
            self._words_waiting = 0
        if self.stage is LinkStage.OPEN and self._words_waiting < _MAX_WORDS:
            self._words_waiting += 1
            self.send(word)

    def refuse(self, reason: str) -> None:
        """Refuse the peer, and close the link.

        Args:
            reason: text for operators; both ends log it.
        """
        self.complain("1E-0001", reason, reason=reason)
        self.send(HelloRefusal(reason))
        self.close()

    def close(self) -> None:
        """Close the link; data already sent is flushed."""
        if self.stage is LinkStage.CLOSED:
            return
        self.stage = LinkStage.CLOSED
        if self._cancel_timer is not None:
            self._cancel_timer()
        directions = [one for one in (self._outward, self._inward) if one is not None]
        for direction in directions:
            direction.end()
        self.link_connection.close()
        self._host.ended(self)
        self._settle(came_to_be=False)
        for direction in directions:
            direction.say_it_ended()

    def _settle(self, *, came_to_be: bool) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            outcome(came_to_be)

    @property
    def _peer(self) -> PeerInstance:
        runs = () if self.description is None else self.description.runs
        return peer_of(self.met)._replace(runs=runs)

    # Used by its directions; see `LinkContext`.

    @property
    def replication(self) -> ReplicationState:
        """See `LinkContext`."""
        return self._host.replication

    @property
    def log(self) -> ServerLog:
        """See `LinkContext`."""
        return self._host.log

    @property
    def conflicts(self) -> DuplicateConflictLog:
        """See `LinkContext`."""
        return self._host.conflicts

    @property
    def elapsed(self) -> Callable[[], float]:
        """See `LinkContext`."""
        return self._host.turns.elapsed

    @property
    def is_ready(self) -> bool:
        """See `LinkContext`."""
        return self.link_connection.is_ready

    def send(self, frame: OutboundFrame, *, compress: bool = False) -> int:
        """See `LinkContext`."""
        data = encode_pieces(frame, compress=compress)
        self.link_connection.send(*data)
        return sum(map(len, data))

    def go_on_in(self, seconds: float) -> None:
        """See `LinkContext`."""
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
        """See `LinkContext`."""
        self._host.flap_log.tell(message, client)

    def complain(self, message: str, *aspects: object, **fields: object) -> None:
        """See `LinkContext`."""
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
        """Role of the peer in the configuration of this instance."""
        if self.destination is not None:
            return f"destination {self.destination}"
        return f"connected to transport {self._transport}"

    def _give_up(self, message: str, problem: str) -> None:
        """Log the problem and close the link; it cannot be continued."""
        self.complain(message, problem, reason=problem)
        self.close()

    # Scheduling.

    def wake(self) -> None:
        """Schedule a step soon: there may be something to send or to acknowledge."""
        self._is_woken = True
        if self.stage is LinkStage.OPEN and not self._is_queued:
            self._is_queued = True
            self._host.turns.queue(self)

    def tick(self, now: float, away: float) -> None:
        """Check timeouts and send heartbeats; to be called about every `HEARTBEAT_INTERVAL_S`.

        Args:
            now: the time by `Scheduler.elapsed`.
            away: seconds for which this process was suspended, as far as is known.
        """
        self._heard += away
        if self.stage in (LinkStage.GREETING, LinkStage.SPARE):
            if now - self._begun - away > LINK_HANDSHAKE_TIMEOUT_S:
                self._give_up(
                    "1E-0004", f"no greeting within {LINK_HANDSHAKE_TIMEOUT_S:.0f} seconds"
                )
            return
        if self._is_paused:
            self._heard = now
        elif now - self._heard > HEARTBEAT_TIMEOUT_S:
            self._give_up(
                "1E-0004", f"nothing has been heard for {HEARTBEAT_TIMEOUT_S:.0f} seconds"
            )
            return
        if self._outward is not None:
            self._outward.is_flushing = True
        if self.is_ready:
            self.send(HeartbeatFrame())
        self.wake()

    @property
    def doing(self) -> tuple[str, str]:
        """See `EngineTask.doing`."""
        return "" if self.hello is None else self.hello.instance, "replication"

    def step(self) -> bool:
        """Receive and send until the time slice is used up; see `EngineTask.step`."""
        self._is_queued = True  # running counts as queued: `wake` must not queue it a second time
        self._is_woken = False
        try:
            has_more = self.stage is not LinkStage.CLOSED and self._work()
        except (ReplicationFrameError, ReplicationProtocolError) as problem:
            self.send(HelloRefusal(str(problem)))
            self._give_up("1E-0003", str(problem))
            return False
        except BaseException:  # a defect: it must not leave a link that does nothing any more
            self.close()
            raise
        self._is_queued = has_more = has_more or (self._is_woken and self.stage is LinkStage.OPEN)
        self._mind_reading()
        return has_more

    def _work(self) -> bool:
        turns = self._host.turns
        if self._inward is not None:
            self._inward.acknowledge()
        while True:
            has_taken = self._take_next()
            has_given = self.stage is LinkStage.OPEN and self.is_ready and self._give_next()
            if self.stage is LinkStage.CLOSED or not (has_taken or has_given):
                return False
            if turns.left(self.elapsed()) <= 0:
                return True

    def _give_next(self) -> bool:
        """Send the next frame of either direction, and return whether there was one."""
        if self._inward is not None and self._inward.give():
            return True
        return self._outward is not None and self._outward.give()

    def _mind_reading(self) -> None:
        """Pause reading while the link cannot process more input, and resume it afterwards."""
        if self.stage is LinkStage.CLOSED:
            return
        is_stalled = self._inward is not None and self._inward.is_stalled
        is_crowded = is_stalled or (self._is_queued and self._reader.held > _MAX_HELD)
        if is_crowded and not self._is_paused:
            self._is_paused = True
            self.link_connection.pause()
        elif self._is_paused and not is_crowded:
            self._is_paused = False
            self._heard = self.elapsed()
            self.link_connection.resume()

    # Received frames.

    def _take_next(self) -> bool:
        """Process the next frame, if one is complete and allowed now; return whether one was."""
        if self._is_deciding:
            return False
        if self._inward is not None and self._inward.is_stalled:
            return self._inward.go_on()
        frame = self._reader.next()
        if frame is None:
            return False
        self._take(frame)
        return True

    def _take(self, frame: InboundFrame) -> None:
        if isinstance(frame, HelloRefusal):
            self.complain("1E-0002", frame.reason, reason=frame.reason)
            self.close()
            return
        if self.stage is LinkStage.GREETING:
            self._meet(frame)
            return
        if self.stage is LinkStage.SPARE and not self._host.take_up(self):
            return
        match frame:
            case ReplicationBatch():
                self._destination_of(frame).take(frame)
            case SkippedRanges():
                self._destination_of(frame).owe(frame)
            case Ack():
                self._source_of(frame).acknowledge(frame)
            case PositionResponse() | DedupState():
                self._resume(frame)
            case PositionRequest():
                self._begin(frame)
            case PeerMessage():
                self._host.hear(self, frame)
            case Hello():
                raise ReplicationProtocolError("says twice who it is")

    def _meet(self, frame: InboundFrame) -> None:
        if not isinstance(frame, Hello):
            raise ReplicationProtocolError(f"says {type(frame).__name__} before who it is")
        if self.gate is None:
            self._host.meet(self, frame)
            return
        self._is_deciding = True
        on_answer(self.gate.admit(frame), partial(self._decided, frame))

    def _decided(self, hello: Hello, refusal: str | None) -> None:
        """Continue the handshake with an admitted peer, or refuse the peer."""
        self._is_deciding = False
        if self.stage is not LinkStage.GREETING:
            return
        if refusal is not None:
            self.refuse(refusal)
            return
        self._host.meet(self, hello)
        self.wake()

    def _begin(self, frame: PositionRequest) -> None:
        replication = self.replication
        if self._inward is not None:
            raise ReplicationProtocolError("asks twice where to go on")
        if replication.description.listens is None:
            raise ReplicationProtocolError(
                f"replicates to {replication.instance}, which takes nothing"
            )
        gate = self.gate
        replication.permits.begin(self._peer.name, None if gate is None else gate.judge)
        branch = (
            LogBranch() if self.description is None else replication.branch_of(self.description)
        )
        self._say_what_is_gone(replication.receiver(self._peer.name), frame, branch)
        self._inward = InboundReplication(
            self,
            self._peer,
            frame,
            self.link_connection.address,
            self._transport,
            branch,
            tells_all=self._may_replicate_all,
        )
        self._see_whether_it_is_another(is_empty=frame.last < frame.first)

    def _say_what_is_gone(
        self, receiver: ReplicationReceiver, frame: PositionRequest, branch: LogBranch
    ) -> None:
        names = {"instance": self.replication.instance, "other": self.address}
        if receiver.has_parted(frame, branch):
            self.log.emit("1E-0034", **names, txid=receiver.received)
        if branch.has_lost:
            self.log.emit("1E-0035", **names)

    @property
    def _may_replicate_all(self) -> bool:
        """True if the peer may replicate every topic that is recorded here."""
        gate, recorded = self.gate, self.replication.description.logged
        topics = (JournalTopic(one.selection.message_type, one.selection.name) for one in recorded)
        return gate is None or all(map(gate.may_replicate, topics))

    def _resume(self, frame: PositionResponse | DedupState) -> None:
        self._source_of(frame).resume(frame)
        if isinstance(frame, DedupState):
            self._see_whether_it_is_another(is_empty=not frame.had)

    def _see_whether_it_is_another(self, *, is_empty: bool) -> None:
        """Report a changed log identity, now that it is known whether the peer's log is empty."""
        before, self.log_before = self.log_before, None
        if before is not None:
            self._host.tell_another(self, before, is_empty=is_empty)

    def _source_of(self, frame: InboundFrame) -> OutboundReplication:
        if self._outward is None:
            raise ReplicationProtocolError(
                f"says {type(frame).__name__}, and nothing is replicated to it"
            )
        return self._outward

    def _destination_of(self, frame: InboundFrame) -> InboundReplication:
        if self._inward is None:
            raise ReplicationProtocolError(
                f"says {type(frame).__name__}, and has not asked where to go on"
            )
        return self._inward
