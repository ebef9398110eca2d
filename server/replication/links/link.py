"""One link: the protocol between two instances over a connection, without the connection.

    connects:  Hello ->               PositionRequest ->                  ReplicationBatch -> ...
    accepts:         <- Hello, PositionRequest      <- PositionResponse, DedupState     <- Ack

The connecting instance sends first, so that the accepting one discloses nothing before it knows the
peer. Each direction begins with the `PositionRequest` of the source. `PositionRequest` also carries
the name that both ends use for that direction, and the interval at which the source requests acks.

Frames are executed in order, and batches are made, in time slices of the engine's thread. Buffers
are bounded: a frame is parsed from the received bytes when the one before has been executed, and
reading stops while the log accepts no entries. No batch is made while the connection still has the
previous one, nor beyond the window of a `ReplicationSender`.

If an instance connects although there is a link already, that instance decides which one stays (see
registry.py). The accepting instance holds the new link in reserve (`LinkStage.RESERVED`) until that
is decided, and until it is sure that the peer is still alive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

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
from server.replication.links.link_stage import LinkStage, Shortfall
from server.replication.links.outbound import OutboundReplication
from server.security.deferred import on_answer
from server.storage.journal import JournalTopic

if TYPE_CHECKING:
    from server.replication.core import PeerInstance, ReplicationReceiver
    from server.replication.links.admission import LinkAdmission
    from server.replication.links.duplicate_conflicts import DuplicateConflictLog
    from server.replication.links.handshake import PeerIntroduction
    from server.replication.links.interfaces import LinkConnection
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationState
    from server.util.log_protocol import ServerLog

HEARTBEAT_INTERVAL_S: Final = 1.0
"""Interval of the heartbeats that each end sends."""

HEARTBEAT_TIMEOUT_S: Final = 10.0
"""Silence after which the peer is considered gone."""

LINK_HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout for the peer to identify itself."""

_MAX_BUFFERED_BYTES: Final = 1 << 20
"""Bytes received and waiting for a time slice, above which reading pauses."""

_MAX_UNSENT_MESSAGES: Final = 256
"""Messages (`PeerMessage`) that may wait for the connection; further ones are dropped."""


class ReplicationLink:
    """One link.

    Args:
        registry: the owner of the link.
        connection: the connection.
        transport_name: name of the transport that has made the connection.
        destination: the Destination that the connection was made for; None if it was accepted.
        peer_host: the host where the peer was reached; empty if the connection was accepted.
        admission: the transport; None if this instance made the connection. While it decides
            whether to admit the peer, no further frames are executed.
        on_outcome: called once with whether the link was established.

    Attributes:
        is_outgoing: whether this instance made the connection.
        destination: name of the destination at the other end.
        shortfall: the reason why the link does not serve the destination that the peer is; None if
            it does, or if the peer is no destination.
        stage: the state of the link.
        hello_sent_s: time of sending our `Hello`, as `Scheduler.elapsed` gives it.
        hello: the `Hello` of the peer.
        description: the configuration that the peer has sent.
        previous_log_id: the identity of the log that the instance of this name had before, until
            that is reported; else None.
    """

    def __init__(
        self,
        registry: LinkRegistry,
        connection: LinkConnection,
        transport_name: str,
        *,
        destination: str | None = None,
        peer_host: str = "",
        admission: LinkAdmission | None = None,
        on_outcome: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.connection: Final = connection
        self.is_outgoing: Final = destination is not None
        self.admission: Final = admission
        self.destination = destination
        self.shortfall: Shortfall | None = None
        self.stage = LinkStage.HANDSHAKE
        self.hello: Hello | None = None
        self.description: PeerIntroduction | None = None
        self.previous_log_id: str | None = None
        self._registry = registry
        self._transport_name = transport_name
        self._peer_host: Final = peer_host
        self._on_outcome: Callable[[bool], None] | None = on_outcome
        self._frame_reader = ReplicationFrameReader(MAX_FRAME_SIZE_BEFORE_HELLO)
        self._started_s = self._last_received_s = self.hello_sent_s = self.elapsed()
        self._outbound: OutboundReplication | None = None
        self._inbound: InboundReplication | None = None
        self._is_queued = False
        self._is_woken = False  # during the current step
        self._is_admission_pending = False  # the transport is deciding whether to admit the peer
        self._is_paused = False
        self._unsent_message_count = 0  # sent since the connection was ready last
        self._cancel_timer: Callable[[], None] | None = None
        self._timer_due_s = NEVER  # expiry of the timer

    # events of the connection

    def feed(self, data: bytes) -> None:
        """Buffer bytes received over the connection; see `SessionInput.feed`."""
        if self.stage is LinkStage.CLOSED:
            return
        self._last_received_s = self.elapsed()
        self._frame_reader.feed(data)
        if not self._is_queued:
            # Acks arrive all the time: with short slices for them, publishers would get less done.
            self._is_queued = self._registry.scheduler.run_or_queue(
                self, len(data), tolerates_delay=True
            )
        self._update_reading()

    def resume_writing(self) -> None:
        """Continue sending: the connection is writable again."""
        self.wake()

    def connection_lost(self) -> None:
        """Close the link: the connection is lost."""
        if self.stage is LinkStage.HANDSHAKE and self.is_outgoing:
            self._fail("1E-0004", "the connection was closed before the handshake")
        self.close()

    @property
    def buffered_bytes(self) -> int:
        """Number of received bytes not parsed yet, usually the start of an incomplete frame."""
        return self._frame_reader.buffered_bytes

    @property
    def address(self) -> str:
        """Address of the peer, with its name if known."""
        address = self.connection.address
        return f"{self.hello.instance} at {address}" if self.hello is not None else address

    @property
    def received_hello(self) -> Hello:
        """The `Hello` of the peer, once received."""
        assert self.hello is not None  # noqa: S101 - used after the `Hello` only
        return self.hello

    @property
    def admin_location(self) -> AdminLocation:
        """Address of the peer's admin interface, as far as its `Hello` has given it."""
        if self.description is None:
            return NO_ADMIN_LOCATION
        return peer_admin_location(
            self.description, self._peer_host or host_of(self.connection.address)
        )

    @property
    def is_verified(self) -> bool:
        """True if the peer's identity is verified, as far as it can be."""
        return self.admission is None or self.admission.is_verified

    @property
    def is_bidirectional(self) -> bool:
        """True if both ends send over it.

        The connecting instance does; the accepting instance has said so in its `Hello`.
        """
        return self.received_hello.sends if self.is_outgoing else self.destination is not None

    # opening and closing

    def send_hello(self, hello: Hello) -> None:
        """Send our `Hello`."""
        self.hello_sent_s = self.elapsed()
        self.send(hello, compress=True)

    def reserve(self) -> None:
        """Hold the link in reserve: there is another one, and the peer decides between them."""
        self.stage = LinkStage.RESERVED

    def open(self) -> None:
        """Open the link: both ends have identified each other."""
        self.stage = LinkStage.OPEN
        self._frame_reader.max_frame_size = MAX_FRAME_SIZE
        self._report_outcome(is_established=True)
        if self.destination is not None:
            destination = self.replication.destinations[self.destination]
            destination.admin_location, destination.link_problem = self.admin_location, ""
            self._outbound = OutboundReplication(
                self, destination, self._peer, self.connection.address, self._transport_name
            )

    def send_message(self, message: PeerMessage) -> None:
        """Send a message that is not part of the log; drop it if too many of them wait already."""
        if self.connection.is_ready:
            self._unsent_message_count = 0
        if self.stage is LinkStage.OPEN and self._unsent_message_count < _MAX_UNSENT_MESSAGES:
            self._unsent_message_count += 1
            self.send(message)

    def refuse(self, reason: str) -> None:
        """Refuse the peer, and close the link.

        Args:
            reason: text for operators; both ends log it.
        """
        self.log_problem("1E-0001", reason, reason=reason)
        self.send(HelloRefusal(reason))
        self.close()

    def close(self) -> None:
        """Close the link; data already sent is flushed."""
        if self.stage is LinkStage.CLOSED:
            return
        self.stage = LinkStage.CLOSED
        if self._cancel_timer is not None:
            self._cancel_timer()
        directions = [one for one in (self._outbound, self._inbound) if one is not None]
        for direction in directions:
            direction.end()
        self.connection.close()
        self._registry.remove_link(self)
        self._report_outcome(is_established=False)
        for direction in directions:
            direction.report_ended()

    def _report_outcome(self, *, is_established: bool) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(is_established)

    @property
    def _peer(self) -> PeerInstance:
        runs = () if self.description is None else self.description.runs
        return peer_of(self.received_hello)._replace(runs=runs)

    # used by its directions

    @property
    def replication(self) -> ReplicationState:
        """The replication state of this instance."""
        return self._registry.replication

    @property
    def log(self) -> ServerLog:
        """The event log."""
        return self._registry.log

    @property
    def conflict_log(self) -> DuplicateConflictLog:
        """Logs pairs of messages that have the same bookmark."""
        return self._registry.conflict_log

    @property
    def elapsed(self) -> Callable[[], float]:
        """Returns the time of the scheduler's monotonic clock, in seconds."""
        return self._registry.scheduler.elapsed

    @property
    def is_ready(self) -> bool:
        """True if the connection has room for the next batch; see `LinkConnection.is_ready`."""
        return self.connection.is_ready

    def send(self, frame: OutboundFrame, *, compress: bool = False) -> int:
        """Send a frame; return its number of bytes.

        Args:
            frame: the frame.
            compress: whether it may be compressed.
        """
        data = encode_pieces(frame, compress=compress)
        self.connection.send(*data)
        return sum(map(len, data))

    def wake_after(self, seconds: float) -> None:
        """Wake the link after a delay, or earlier."""
        due_s = self.elapsed() + seconds
        if self._cancel_timer is not None:
            if due_s >= self._timer_due_s:
                return
            self._cancel_timer()
        self._timer_due_s = due_s
        self._cancel_timer = self._registry.call_later(seconds, self._timer_expired)

    def _timer_expired(self) -> None:
        self._cancel_timer = None
        self.wake()

    def log_event(self, message: str, client: str) -> None:
        """Log an event of one direction; see `LinkFlapLog.log_event`."""
        self._registry.flap_log.log_event(message, client)

    def log_problem(self, message: str, *aspects: object, **fields: object) -> None:
        """Log a problem of the link, rate-limited.

        Args:
            message: the id of the entry.
            aspects: distinguish problems that have the id and the peer in common.
            fields: the fields of the entry.
        """
        if self.destination is not None and "reason" in fields:
            self.replication.destinations[self.destination].set_link_problem(fields["reason"])
        self._registry.log_problem(
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
        return f"connected to transport {self._transport_name}"

    def _fail(self, message: str, problem: str) -> None:
        """Log the problem and close the link; it cannot be continued."""
        self.log_problem(message, problem, reason=problem)
        self.close()

    # scheduling

    def wake(self) -> None:
        """Schedule a step soon: there may be something to send or to acknowledge."""
        self._is_woken = True
        if self.stage is LinkStage.OPEN and not self._is_queued:
            self._is_queued = True
            self._registry.scheduler.queue_task(self)

    def tick(self, now: float, suspended_s: float) -> None:
        """Check timeouts and send heartbeats; to be called about every `HEARTBEAT_INTERVAL_S`.

        Args:
            now: the time by `Scheduler.elapsed`.
            suspended_s: seconds for which this process was suspended, as far as is known.
        """
        self._last_received_s += suspended_s
        if self.stage in (LinkStage.HANDSHAKE, LinkStage.RESERVED):
            if now - self._started_s - suspended_s > LINK_HANDSHAKE_TIMEOUT_S:
                self._fail("1E-0004", f"no handshake within {LINK_HANDSHAKE_TIMEOUT_S:.0f} seconds")
            return
        if self._is_paused:
            self._last_received_s = now
        elif now - self._last_received_s > HEARTBEAT_TIMEOUT_S:
            self._fail("1E-0004", f"no data received for {HEARTBEAT_TIMEOUT_S:.0f} seconds")
            return
        if self._outbound is not None:
            self._outbound.is_flushing = True
        if self.is_ready:
            self.send(HeartbeatFrame())
        self.wake()

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "" if self.hello is None else self.hello.instance, "replication"

    def step(self) -> bool:
        """Receive and send until the time slice is used up; see `EngineTask.step`."""
        self._is_queued = True  # running counts as queued: `wake` must not queue it a second time
        self._is_woken = False
        try:
            has_more = self.stage is not LinkStage.CLOSED and self._run_slice()
        except (ReplicationFrameError, ReplicationProtocolError) as problem:
            self.send(HelloRefusal(str(problem)))
            self._fail("1E-0003", str(problem))
            return False
        except BaseException:  # a defect: it must not leave a link that does nothing any more
            self.close()
            raise
        self._is_queued = has_more = has_more or (self._is_woken and self.stage is LinkStage.OPEN)
        self._update_reading()
        return has_more

    def _run_slice(self) -> bool:
        scheduler = self._registry.scheduler
        if self._inbound is not None:
            self._inbound.send_ack()
        while True:
            has_received = self._process_next_frame()
            has_sent = self.stage is LinkStage.OPEN and self.is_ready and self._send_next()
            if self.stage is LinkStage.CLOSED or not (has_received or has_sent):
                return False
            if scheduler.time_left(self.elapsed()) <= 0:
                return True

    def _send_next(self) -> bool:
        """Send the next frame of either direction, and return whether there was one."""
        if self._inbound is not None and self._inbound.send_next():
            return True
        return self._outbound is not None and self._outbound.send_next()

    def _update_reading(self) -> None:
        """Pause reading while the link cannot process more input, and resume it afterwards."""
        if self.stage is LinkStage.CLOSED:
            return
        is_blocked = self._inbound is not None and self._inbound.is_blocked
        must_pause = is_blocked or (
            self._is_queued and self._frame_reader.buffered_bytes > _MAX_BUFFERED_BYTES
        )
        if must_pause and not self._is_paused:
            self._is_paused = True
            self.connection.pause()
        elif self._is_paused and not must_pause:
            self._is_paused = False
            self._last_received_s = self.elapsed()
            self.connection.resume()

    # received frames

    def _process_next_frame(self) -> bool:
        """Process the next frame, if one is complete and allowed now; return whether one was."""
        if self._is_admission_pending:
            return False
        if self._inbound is not None and self._inbound.is_blocked:
            return self._inbound.resume_batch()
        frame = self._frame_reader.next_frame()
        if frame is None:
            return False
        self._process_frame(frame)
        return True

    def _process_frame(self, frame: InboundFrame) -> None:
        if isinstance(frame, HelloRefusal):
            self.log_problem("1E-0002", frame.reason, reason=frame.reason)
            self.close()
            return
        if self.stage is LinkStage.HANDSHAKE:
            self._process_hello(frame)
            return
        if self.stage is LinkStage.RESERVED and not self._registry.open_reserved(self):
            return
        match frame:
            case ReplicationBatch():
                self._required_inbound(frame).receive_batch(frame)
            case SkippedRanges():
                self._required_inbound(frame).record_skipped(frame)
            case Ack():
                self._required_outbound(frame).process_ack(frame)
            case PositionResponse() | DedupState():
                self._resume_outbound(frame)
            case PositionRequest():
                self._begin_inbound(frame)
            case PeerMessage():
                self._registry.dispatch_message(self, frame)
            case Hello():
                raise ReplicationProtocolError("duplicate Hello")

    def _process_hello(self, frame: InboundFrame) -> None:
        if not isinstance(frame, Hello):
            raise ReplicationProtocolError(f"{type(frame).__name__} before Hello")
        if self.admission is None:
            self._registry.process_hello(self, frame)
            return
        self._is_admission_pending = True
        on_answer(self.admission.admit(frame), partial(self._finish_admission, frame))

    def _finish_admission(self, hello: Hello, refusal: str | None) -> None:
        """Continue the handshake with an admitted peer, or refuse the peer."""
        self._is_admission_pending = False
        if self.stage is not LinkStage.HANDSHAKE:
            return
        if refusal is not None:
            self.refuse(refusal)
            return
        self._registry.process_hello(self, hello)
        self.wake()

    def _begin_inbound(self, frame: PositionRequest) -> None:
        replication = self.replication
        if self._inbound is not None:
            raise ReplicationProtocolError("duplicate PositionRequest")
        if replication.description.listens is None:
            raise ReplicationProtocolError(
                f"PositionRequest, but {replication.instance} has no transport for replication"
            )
        admission = self.admission
        replication.permissions.set_check(
            self._peer.name, None if admission is None else admission.check_topic
        )
        branch = (
            LogBranch() if self.description is None else replication.log_branch_of(self.description)
        )
        self._log_divergence(replication.receiver_for(self._peer.name), frame, branch)
        self._inbound = InboundReplication(
            self,
            self._peer,
            frame,
            self.connection.address,
            self._transport_name,
            branch,
            sends_all=self._may_replicate_all,
        )
        self._report_changed_log(is_empty=frame.last < frame.first)

    def _log_divergence(
        self, receiver: ReplicationReceiver, frame: PositionRequest, branch: LogBranch
    ) -> None:
        names = {"instance": self.replication.instance, "other": self.address}
        if receiver.has_diverged(frame, branch):
            self.log.emit("1E-0034", **names, txid=receiver.received_txid)
        if branch.has_lost_entries:
            self.log.emit("1E-0035", **names)

    @property
    def _may_replicate_all(self) -> bool:
        """True if the peer may replicate every topic that is recorded here."""
        admission, recorded = self.admission, self.replication.description.logged
        topics = (
            JournalTopic(logged.selection.message_type, logged.selection.name)
            for logged in recorded
        )
        return admission is None or all(map(admission.may_replicate, topics))

    def _resume_outbound(self, frame: PositionResponse | DedupState) -> None:
        self._required_outbound(frame).resume(frame)
        if isinstance(frame, DedupState):
            self._report_changed_log(is_empty=not frame.windows)

    def _report_changed_log(self, *, is_empty: bool) -> None:
        """Report a changed log identity, now that it is known whether the peer's log is empty."""
        previous_log_id, self.previous_log_id = self.previous_log_id, None
        if previous_log_id is not None:
            self._registry.report_changed_log(self, previous_log_id, is_empty=is_empty)

    def _required_outbound(self, frame: InboundFrame) -> OutboundReplication:
        if self._outbound is None:
            raise ReplicationProtocolError(
                f"{type(frame).__name__}, but nothing is replicated to it"
            )
        return self._outbound

    def _required_inbound(self, frame: InboundFrame) -> InboundReplication:
        if self._inbound is None:
            raise ReplicationProtocolError(f"{type(frame).__name__} before PositionRequest")
        return self._inbound
