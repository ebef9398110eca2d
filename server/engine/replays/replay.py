"""One bookmark subscription, from its command to its end.

              begin                    caught up
    looking up ---> reading for itself <---------> in the tail
                     |  ^   |           falls behind
              pause  |  |   | caught up, option live
                     v  |   v
                   paused   held -- the rest of the log has been read --> live

A replay keeps a reading of its own if it has an end, a message limit, a rate, conflation or
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
"""A function that makes an ack with a bookmark and resume positions; see `Replay.places`."""


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """The options of a bookmark subscription, apart from part of the log, topic, filter and form.

    Attributes:
        most: the maximum number of messages, None for all.
        rate: the maximum rate, None for the rate at which the client reads.
        is_paused: whether it begins paused.
        is_live: whether messages are wanted before they are on stable storage.
        on_completed: makes the ack for a complete replay; None if not requested.
        on_failed: makes the ack with the reason of a failure; None if not requested.
        on_persisted: makes the periodic acks with the position up to which the log is durable; None
            if not requested.
        persisted_interval: seconds from one of these to the next.
    """

    most: int | None = None
    rate: ReplayRate | None = None
    is_paused: bool = False
    is_live: bool = False
    on_completed: MakeAck | None = None
    on_failed: Callable[[str], Header] | None = None
    on_persisted: MakeResumeAck | None = None
    persisted_interval: float = 1.0


class ReplayGroupKey(NamedTuple):
    """The properties that replays must have in common to share one reading.

    Source: AMPS User Guide, Pausing and Resuming Bookmark Subscriptions.

    Attributes:
        span: the part of the log to read.
        rate: the maximum rate.
        tail: the tail, by the durability that messages must have.
        only: the replay, if it cannot share a reading.
    """

    span: LogSpan
    rate: ReplayRate | None
    tail: ReplayTail
    only: Replay | None


class Replay:
    """Sends the messages of one bookmark subscription.

    Args:
        listener: the client.
        log: the transaction log.
        terms: the options.
        tail: reads the end of the log, as far as the subscription may see it.
        timeline: the time by which messages are conflated, None if they are not.

    Attributes:
        subscription: the subscription, once it has begun.
        reading: its reading of the log; None while the tail reads for it, or nothing does.
        left: the number of messages that may still be sent, None for any number.
        records: the records that its page is cut from, None if it is not paginated.
    """

    subscription: Subscription

    def __init__(
        self,
        listener: Session,
        log: TransactionLog,
        terms: ReplayTerms,
        tail: ReplayTail,
        timeline: ReplayClock | None = None,
    ) -> None:
        self.listener = listener
        self.log = log
        self.rate = terms.rate
        self.left = terms.most
        self.tail = tail
        self.timeline = timeline
        self.records: HistoricalPage | None = None
        self._terms = terms
        self._span: LogSpan | None = None  # still to be read, as of the last change of state
        self._is_open = True
        self._is_complete = False
        self._is_paused = terms.is_paused
        self._subscribed_at = log.last_txid
        self._reported = 0, 0
        self.reading: ReplayLogReader | None = None
        self._in_tail = False
        self._live: LiveHandover | None = None
        self._release: Callable[[], None] = _nothing

    @property
    def is_live(self) -> bool:
        """True if it has the option `live`."""
        return self._terms.is_live

    @property
    def cursor(self) -> str:
        """The number of its reading, or `tail`; empty if nothing reads for it."""
        if self.reading is not None:
            return str(self.reading.number)
        return "tail" if self._in_tail else ""

    def seconds_behind(self, now: float) -> float:
        """Return the age of the last entry read, or 0 if the replay has caught up.

        Args:
            now: in seconds since 1970.
        """
        reading = self.reading
        if reading is None or reading.is_caught_up or not reading.moment:
            return 0.0
        return max(now - reading.moment, 0.0)

    @property
    def is_paused(self) -> bool:
        """True while its client has paused it."""
        return self._is_paused

    def filter_costs(self) -> Iterator[FilterCost]:
        """Return the costs of its filter where that is evaluated for entries read from the log."""
        source = self.reading if self.reading is not None else self.tail if self._in_tail else None
        return iter(()) if source is None else source.filter_costs(self.subscription)

    @property
    def has_had_enough(self) -> bool:
        """True if the requested number of messages has been sent."""
        return self.left == 0

    @property
    def needs_care(self) -> bool:
        """True if messages have to be counted, or their timestamps matter."""
        asked_for = (self.left, self.rate, self.timeline, self.records)
        return any(one is not None for one in asked_for)

    def recipients(self) -> ReplayTopics | HistoricalPage:
        """Return the recipients of the entries read for it."""
        return self.records or ReplayTopics(self.listener.engine)

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
        self._release = self.log.hold(self._needed_from, f"replay of {self.listener.client_name}")
        if not self._is_paused:
            self._read()
        if self._terms.on_persisted is not None:
            self._report_later()

    def pause(self) -> None:
        """Stop sending until it is resumed."""
        self._is_paused = True
        self._stop()

    def unpause(self) -> ReplayGroupKey | None:
        """End the pause.

        Returns:
            The properties by which it may share a reading with other replays of its connection;
            None if there is nothing to read now.
        """
        was_paused, self._is_paused = self._is_paused, False
        if not was_paused or not self._is_open or self._span is None:
            return None
        alone = self.subscription.deletions or any(
            one is not None for one in (self.left, self.timeline, self.records)
        )
        return ReplayGroupKey(self._span, self.rate, self.tail, self if alone else None)

    def cancel(self) -> None:
        """Stop sending for good, and release the log entries and records that are held."""
        self._is_open = False
        self._stop()
        self._end_live()
        self._release()
        if self.records is not None:
            self.records.close()

    def _needed_from(self) -> int:
        """Return the first txid still to be read, which the log must retain."""
        if self.reading is not None:
            return self.reading.position + 1
        if self._in_tail:
            return self.tail.position + 1
        if self._live is not None or self._span is None:
            return self.log.last_txid + 1
        return self._span.after + 1

    def _stop(self) -> None:
        """Leave the reading and the tail, and store the position reached."""
        if self.reading is not None:
            self._span = self._rest(self.reading.position)
            self.reading.leave(self)
            self.reading = None
        if self._in_tail:
            self._span = self._rest(self.tail.position)
            self.tail.leave(self)
            self._in_tail = False
        if self.timeline is not None:
            self.timeline.stop()

    def _rest(self, position: int) -> LogSpan:
        assert self._span is not None  # noqa: S101 - it has been read from, so it has begun
        return replace(self._span, after=position)

    def _read(self) -> None:
        assert self._span is not None  # noqa: S101 - it has begun
        read_for((self,), self._span)

    # ---- called by its reading and the tail

    def reached(self, position: int) -> bool:
        """Note the position reached; return True to be called again. See `LogReaderClient`."""
        has_more = False
        if not self._is_complete and position >= self._subscribed_at and not self._has_end:
            has_more = self._complete(position)
        if self._live is not None and self._live.holds_too_much:
            self._read_for_itself()
        return has_more

    def is_behind(self) -> None:
        """Note that the client does not keep up."""
        if self._live is not None:
            self._read_for_itself()

    def caught_up(self, position: int) -> None:
        """Switch from a reading that has caught up to the tail or live messages, if allowed."""
        if not self._is_complete or self._has_end or self.needs_care or self._live is not None:
            return
        if self.subscription.deletions:  # no other source delivers these
            return
        if self._terms.is_live:
            self._stop()
            self._live = LiveHandover(
                self.subscription, self.listener.engine.topics, self.log.last_txid
            )
            read_for((self,), replace(self._rest(position), last=self._live.last_txid))
        elif self.tail.join(self, position):
            self._stop()
            self._in_tail = True
            self.tail.run()

    def fell_behind(self) -> None:
        """Return to a reading of its own: the client did not keep up with the tail."""
        self._read_for_itself()

    def finished(self, position: int) -> bool:
        """End the replay, or go live, at the end of its part; return True to be called again."""
        if self._live is None and self._complete(position):
            return True
        self._stop()
        if self._live is not None:
            self._live.release()
            return False
        self._is_open = False
        self._release()
        return False

    def failed(self, problem: JournalUnreadableError) -> None:
        """End the subscription, and notify the client: the next entry cannot be read.

        While the replay is not complete, an ack reports the failure, if requested. Otherwise the
        client is disconnected: it reconnects for the messages that it has not got.
        """
        listener, sub_id = self.listener, self.subscription.sub_id
        listener.log.emit("1D-0014", client=listener.client_name, sub_id=sub_id, text=problem)
        listener.end_subscription(sub_id)
        if self._terms.on_failed is not None and not self._is_complete:
            listener.send(self._terms.on_failed(f"the transaction log cannot be read: {problem}"))
        else:
            listener.close("connection closed")

    def _read_for_itself(self) -> None:
        self._stop()
        self._end_live()
        self._read()

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.remove()
            self._live = None

    @property
    def _has_end(self) -> bool:
        span = self._span
        return span is not None and (
            span.last is not None or span.before is not None or bool(span.until)
        )

    def _complete(self, position: int) -> bool:
        """Send the ack of a complete replay, when no conflated messages are waiting any more.

        Returns:
            True if some are still waiting; a part of them has been released.
        """
        conflater = self.subscription.conflater
        if self._is_complete:
            return False
        if conflater is not None and conflater.release_some(_RELEASE_BATCH_SIZE):
            return True
        self._is_complete = True
        if self._terms.on_completed is not None:
            self.listener.send(self._terms.on_completed(self.log.bookmark_at(position)))
        return False

    # ---- positions to resume from

    def places(self, position: int) -> list[str]:
        """Return positions to resume from, here and at other instances, after a txid.

        They are unknown for conflated or paginated replays: messages read from the log may not have
        been sent yet, or may never be on a page.
        """
        if self.timeline is not None or self.records is not None:
            return []
        return self.log.places(min(position, self.log.durable))

    def _report_later(self) -> None:
        clock = self.listener.engine.clock
        clock.call_later(self._terms.persisted_interval, self._report)

    def _report(self) -> None:
        """Send an ack with the durable position, if it has advanced since the last one."""
        if not self._is_open or not self.listener.is_open:
            return
        reached = self.log.settled(), self._needed_from() - 1
        if reached != self._reported and self._terms.on_persisted is not None:
            bookmark = self.log.bookmark_at(reached[0])
            if bookmark is not None:
                self._reported = reached
                self.listener.send(self._terms.on_persisted(bookmark, self.places(reached[1])))
                self.listener.engine.flush()
        self._report_later()


def read_for(replays: Sequence[Replay], span: LogSpan) -> None:
    """Begin one reading of a part of the log, for some replays of a connection."""
    reading = ReplayLogReader(replays, span)
    for replay in replays:
        replay.reading = reading
    reading.run()


def _nothing() -> None:
    """Do nothing: no journal files are held."""
