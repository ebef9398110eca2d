"""One bookmark subscription, from its command to its end.

              begin                    caught up
    looking up ---> with its own reader <--------> in the tail
                     |  ^   |           falls behind
              pause  |  |   | caught up, option live
                     v  |   v
                   paused   held -- the rest of the log has been read --> live

A replay keeps a log reader of its own if it has an end, a message limit, a rate, conflation or
deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from server.engine.replays.live_handover import LiveHandover
from server.engine.replays.log_reader import ReplayLogReader
from server.engine.replays.logged_topics import ReplayTopics
from server.storage.journal import LogSpan

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.replays.historical_pages import HistoricalPage
    from server.engine.replays.rate_limiter import ReplayRate
    from server.engine.replays.replay_clock import ReplayClock
    from server.engine.replays.tail import ReplayTail
    from server.engine.session import Session
    from server.storage.journal import JournalUnreadableError
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_RELEASE_BATCH_SIZE: Final = 200
"""Conflated messages that are released per time slice when a replay is complete."""

MakeAck = Callable[[str | None], "Header"]
"""A function that makes an ack with a bookmark."""

MakeResumeAck = Callable[[str | None, Sequence[str]], "Header"]
"""Makes an ack with a bookmark and resume positions; see `Replay.resume_positions`."""


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """The options of a bookmark subscription, apart from part of the log, topic, filter and form.

    Attributes:
        max_messages: the maximum number of messages, None for all.
        rate: the maximum rate, None for the rate at which the client reads.
        starts_paused: whether it begins paused.
        is_live: whether messages are sent before they are on stable storage.
        make_completed_ack: makes the ack for a complete replay; None if not requested.
        make_failed_ack: makes the ack with the reason of a failure; None if not requested.
        make_persisted_ack: makes the periodic acks with the position up to which the log is
            durable; None if not requested.
        persisted_interval_s: seconds from one of these to the next.
    """

    max_messages: int | None = None
    rate: ReplayRate | None = None
    starts_paused: bool = False
    is_live: bool = False
    make_completed_ack: MakeAck | None = None
    make_failed_ack: Callable[[str], Header] | None = None
    make_persisted_ack: MakeResumeAck | None = None
    persisted_interval_s: float = 1.0


class ReplayGroupKey(NamedTuple):
    """The properties that replays must have in common to share one log reader.

    Source: AMPS User Guide, Pausing and Resuming Bookmark Subscriptions.

    Attributes:
        span: the part of the log to read.
        rate: the maximum rate.
        tail: the tail, by the durability that messages must have.
        exclusive_replay: the replay, if it cannot share a log reader.
    """

    span: LogSpan
    rate: ReplayRate | None
    tail: ReplayTail
    exclusive_replay: Replay | None


class Replay:
    """Sends the messages of one bookmark subscription.

    Args:
        session: the client.
        log: the transaction log.
        terms: the options.
        tail: reads the end of the log, as far as the subscription may see it.
        replay_clock: the time by which messages are conflated, None if they are not.

    Attributes:
        subscription: the subscription, once it has begun.
        log_reader: its log reader; None while the tail reads for it, or nothing does.
        messages_left: the number of messages that may still be sent, None for any number.
        historical_page: the records that its page is cut from, None if it is not paginated.
    """

    subscription: Subscription

    def __init__(
        self,
        session: Session,
        log: TransactionLog,
        terms: ReplayTerms,
        tail: ReplayTail,
        replay_clock: ReplayClock | None = None,
    ) -> None:
        self.session = session
        self.log = log
        self.rate = terms.rate
        self.messages_left = terms.max_messages
        self.tail = tail
        self.replay_clock = replay_clock
        self.historical_page: HistoricalPage | None = None
        self._terms = terms
        self._span: LogSpan | None = None  # still to be read, as of the last change of state
        self._is_open = True
        self._is_complete = False
        self._is_paused = terms.starts_paused
        self._txid_at_start = log.last_txid
        self._reported_positions = 0, 0
        self.log_reader: ReplayLogReader | None = None
        self._is_in_tail = False
        self._live_handover: LiveHandover | None = None
        self._release_log: Callable[[], None] = _nothing

    @property
    def has_live_option(self) -> bool:
        """True if it has the option `live`."""
        return self._terms.is_live

    @property
    def cursor(self) -> str:
        """The number of its log reader, or `tail`; empty if nothing reads for it."""
        if self.log_reader is not None:
            return str(self.log_reader.number)
        return "tail" if self._is_in_tail else ""

    def seconds_behind(self, now: float) -> float:
        """Return the age of the last entry read, or 0 if the replay has caught up.

        Args:
            now: in seconds since 1970.
        """
        log_reader = self.log_reader
        if log_reader is None or log_reader.is_caught_up or not log_reader.last_recorded_s:
            return 0.0
        return max(now - log_reader.last_recorded_s, 0.0)

    @property
    def is_paused(self) -> bool:
        """True while its client has paused it."""
        return self._is_paused

    def filter_costs(self) -> Iterator[FilterCost]:
        """Return the costs of its filter where that is evaluated for entries read from the log."""
        source = (
            self.log_reader
            if self.log_reader is not None
            else self.tail
            if self._is_in_tail
            else None
        )
        return iter(()) if source is None else source.filter_costs(self.subscription)

    @property
    def is_limit_reached(self) -> bool:
        """True if the requested number of messages has been sent."""
        return self.messages_left == 0

    @property
    def needs_separate_sends(self) -> bool:
        """True if messages have to be counted, or their timestamps matter."""
        requirements = (self.messages_left, self.rate, self.replay_clock, self.historical_page)
        return any(requirement is not None for requirement in requirements)

    def make_recipients(self) -> ReplayTopics | HistoricalPage:
        """Return the recipients of the entries read for it."""
        return self.historical_page or ReplayTopics(self.session.engine)

    def begin(self, subscription: Subscription, span: LogSpan) -> None:
        """Begin to send messages.

        Args:
            subscription: the recipient.
            span: the part of the log.
        """
        self.subscription = subscription
        self._span = span
        if not self._is_open:
            return
        self._release_log = self.log.hold_files(
            self._first_needed_txid, f"replay of {self.session.client_name}"
        )
        if not self._is_paused:
            self._start_reading()
        if self._terms.make_persisted_ack is not None:
            self._schedule_report()

    def pause(self) -> None:
        """Stop sending until it is resumed."""
        self._is_paused = True
        self._stop_reading()

    def unpause(self) -> ReplayGroupKey | None:
        """End the pause.

        Returns:
            The properties by which it may share a log reader with other replays of its connection;
            None if there is nothing to read now.
        """
        was_paused, self._is_paused = self._is_paused, False
        if not was_paused or not self._is_open or self._span is None:
            return None
        is_exclusive = self.subscription.sends_deletions or any(
            one is not None for one in (self.messages_left, self.replay_clock, self.historical_page)
        )
        return ReplayGroupKey(self._span, self.rate, self.tail, self if is_exclusive else None)

    def cancel(self) -> None:
        """Stop sending for good, and release the log entries and records that are held."""
        self._is_open = False
        self._stop_reading()
        self._end_live()
        self._release_log()
        if self.historical_page is not None:
            self.historical_page.close()

    def _first_needed_txid(self) -> int:
        """Return the first txid still to be read, which the log must retain."""
        if self.log_reader is not None:
            return self.log_reader.position + 1
        if self._is_in_tail:
            return self.tail.position + 1
        if self._live_handover is not None or self._span is None:
            return self.log.last_txid + 1
        return self._span.after_txid + 1

    def _stop_reading(self) -> None:
        """Leave the log reader and the tail, and store the position reached."""
        if self.log_reader is not None:
            self._span = self._remaining_span(self.log_reader.position)
            self.log_reader.remove_replay(self)
            self.log_reader = None
        if self._is_in_tail:
            self._span = self._remaining_span(self.tail.position)
            self.tail.remove_replay(self)
            self._is_in_tail = False
        if self.replay_clock is not None:
            self.replay_clock.stop()

    def _remaining_span(self, position: int) -> LogSpan:
        assert self._span is not None  # noqa: S101 - it has been read from, so it has begun
        return replace(self._span, after_txid=position)

    def _start_reading(self) -> None:
        assert self._span is not None  # noqa: S101 - it has begun
        start_log_reader((self,), self._span)

    # ---- called by its log reader and the tail

    def on_position_reached(self, position: int) -> bool:
        """Note the position reached; return True to be called again."""
        has_more = False
        if not self._is_complete and position >= self._txid_at_start and not self._has_end:
            has_more = self._try_complete(position)
        if self._live_handover is not None and self._live_handover.is_over_limit:
            self._restart_own_reader()
        return has_more

    def on_client_behind(self) -> None:
        """Note that the client does not keep up."""
        if self._live_handover is not None:
            self._restart_own_reader()

    def on_caught_up(self, position: int) -> None:
        """Switch from a log reader that has caught up to the tail or live messages, if allowed."""
        if (
            not self._is_complete
            or self._has_end
            or self.needs_separate_sends
            or self._live_handover is not None
        ):
            return
        if self.subscription.sends_deletions:  # no other source delivers these
            return
        if self._terms.is_live:
            self._stop_reading()
            self._live_handover = LiveHandover(
                self.subscription, self.session.engine.topics, self.log.last_txid
            )
            start_log_reader(
                (self,),
                replace(self._remaining_span(position), last_txid=self._live_handover.last_txid),
            )
        elif self.tail.try_add_replay(self, position):
            self._stop_reading()
            self._is_in_tail = True
            self.tail.run()

    def on_fell_behind(self) -> None:
        """Return to a log reader of its own: the client did not keep up with the tail."""
        self._restart_own_reader()

    def on_finished(self, position: int) -> bool:
        """End the replay, or go live, at the end of its part; return True to be called again."""
        if self._live_handover is None and self._try_complete(position):
            return True
        self._stop_reading()
        if self._live_handover is not None:
            self._live_handover.release()
            return False
        self._is_open = False
        self._release_log()
        return False

    def on_read_failed(self, error: JournalUnreadableError) -> None:
        """End the subscription, and notify the client: the next entry cannot be read.

        While the replay is not complete, an ack reports the failure, if requested. Otherwise the
        client is disconnected: it reconnects for the messages that it has not got.
        """
        session, sub_id = self.session, self.subscription.sub_id
        session.log.emit("1D-0014", client=session.client_name, sub_id=sub_id, text=error)
        session.end_subscription(sub_id)
        if self._terms.make_failed_ack is not None and not self._is_complete:
            session.send(
                self._terms.make_failed_ack(f"the transaction log cannot be read: {error}")
            )
        else:
            session.close("connection closed")

    def _restart_own_reader(self) -> None:
        self._stop_reading()
        self._end_live()
        self._start_reading()

    def _end_live(self) -> None:
        if self._live_handover is not None:
            self._live_handover.unsubscribe()
            self._live_handover = None

    @property
    def _has_end(self) -> bool:
        span = self._span
        return span is not None and (
            span.last_txid is not None or span.end_timestamp is not None or bool(span.end_entries)
        )

    def _try_complete(self, position: int) -> bool:
        """Send the ack of a complete replay, when no conflated messages are waiting any more.

        Returns:
            True if some are still waiting; a part of them has been released.
        """
        conflater = self.subscription.conflater
        if self._is_complete:
            return False
        if conflater is not None and conflater.release_oldest(_RELEASE_BATCH_SIZE):
            return True
        self._is_complete = True
        if self._terms.make_completed_ack is not None:
            self.session.send(self._terms.make_completed_ack(self.log.bookmark_at(position)))
        return False

    # ---- positions to resume from

    def resume_positions(self, position: int) -> list[str]:
        """Return positions to resume from, at this and other instances, after a txid.

        They are unknown for conflated or paginated replays: messages read from the log may not have
        been sent yet, or may never be on a page.
        """
        if self.replay_clock is not None or self.historical_page is not None:
            return []
        return self.log.resume_positions(min(position, self.log.durable_txid))

    def _schedule_report(self) -> None:
        clock = self.session.engine.clock
        clock.call_later(self._terms.persisted_interval_s, self._report_progress)

    def _report_progress(self) -> None:
        """Send an ack with the durable position, if it has advanced since the last one."""
        if not self._is_open or not self.session.is_open:
            return
        reached = self.log.settled_txid(), self._first_needed_txid() - 1
        if reached != self._reported_positions and self._terms.make_persisted_ack is not None:
            bookmark = self.log.bookmark_at(reached[0])
            if bookmark is not None:
                self._reported_positions = reached
                self.session.send(
                    self._terms.make_persisted_ack(bookmark, self.resume_positions(reached[1]))
                )
                self.session.engine.flush()
        self._schedule_report()


def start_log_reader(replays: Sequence[Replay], span: LogSpan) -> None:
    """Start one log reader for a part of the log, for some replays of a connection."""
    log_reader = ReplayLogReader(replays, span)
    for replay in replays:
        replay.log_reader = log_reader
    log_reader.run()


def _nothing() -> None:
    """Do nothing: no journal files are held."""
