"""One bookmark subscription, from its command to its end.

              begin                    caught up
    looking up ---> reading for itself <---------> in the tail
                     |  ^   |           falls behind
              pause  |  |   | caught up, option live
                     v  |   v
                   paused   held -- what it has not got has been read --> live

A replay that has an end, counts, is held to a rate, is conflated or has deletions goes on reading
for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from server.journal import Span
from server.replays.live import Live
from server.replays.logged_topics import LoggedTopics
from server.replays.reading import Reading

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.journal import JournalUnreadable
    from server.replays.listener import Listener
    from server.replays.paged import PagedRecords
    from server.replays.rate import RateTerms
    from server.replays.tail import Tail
    from server.replays.timeline import Timeline
    from server.subscriptions.filter_costs import FilterCost
    from server.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_LET_GO_AT_ONCE: Final = 200
"""Messages that have waited to be conflated and leave in a slice when a replay is complete."""

MakeAck = Callable[[str | None], "Header"]
"""Makes an ack with a bookmark."""

TellPlaces = Callable[[str | None, Sequence[str]], "Header"]
"""Makes an ack with a bookmark, and with places where to go on; see `Replay.places`."""


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """What a bookmark subscription asks for beside the part of the log, topic, filter and form.

    Attributes:
        most: how many messages at most, None for all.
        rate: how fast, None for as fast as the client reads.
        is_paused: whether it begins paused.
        is_live: whether messages are wanted before they are on stable storage.
        on_completed: makes the ack that tells that the replay is complete; None if nobody asked.
        on_failed: makes the ack that tells why it will not be; None if nobody asked.
        on_persisted: makes the acks that tell from time to time how far the log is safe.
        persisted_interval: seconds from one of these to the next.
    """

    most: int | None = None
    rate: RateTerms | None = None
    is_paused: bool = False
    is_live: bool = False
    on_completed: MakeAck | None = None
    on_failed: Callable[[str], Header] | None = None
    on_persisted: TellPlaces | None = None
    persisted_interval: float = 1.0


class Company(NamedTuple):
    """What replays have to agree in, to be read for together.

    Source: AMPS User Guide, Pausing and Resuming Bookmark Subscriptions.

    Attributes:
        span: what is to be read.
        rate: how fast.
        tail: how safe messages have to be.
        only: the replay, if it can only be read for alone.
    """

    span: Span
    rate: RateTerms | None
    tail: Tail
    only: Replay | None


class Replay:
    """What sends the messages of one bookmark subscription.

    Args:
        listener: whose it is.
        log: the transaction log.
        terms: what was asked for.
        tail: reads the end of the log, as far as the subscription may see it.
        timeline: the time by which messages are conflated, None if they are not.

    Attributes:
        subscription: the subscription, once it has begun.
        reading: what reads for it, unless the tail does, or nothing.
        left: how many messages may still be sent, None for any number.
        records: what its page is cut from, None if it is not paginated.
    """

    subscription: Subscription

    def __init__(
        self,
        listener: Listener,
        log: TransactionLog,
        terms: ReplayTerms,
        tail: Tail,
        timeline: Timeline | None = None,
    ) -> None:
        self.listener = listener
        self.log = log
        self.rate = terms.rate
        self.left = terms.most
        self.tail = tail
        self.timeline = timeline
        self.records: PagedRecords | None = None
        self._terms = terms
        self._span: Span | None = None  # what is left to be read, as of the last change of state
        self._is_open = True
        self._is_complete = False
        self._is_paused = terms.is_paused
        self._subscribed_at = log.last_txid
        self._reported = 0, 0
        self.reading: Reading | None = None
        self._in_tail = False
        self._live: Live | None = None
        self._release: Callable[[], None] = _nothing

    @property
    def is_live(self) -> bool:
        """Whether it was asked for with the option `live`."""
        return self._terms.is_live

    @property
    def cursor(self) -> str:
        """What reads for it, in a word; nothing if nothing does."""
        if self.reading is not None:
            return str(self.reading.number)
        return "tail" if self._in_tail else ""

    def seconds_behind(self, now: float) -> float:
        """The age of what it was sent last, if there is more; 0 if it has been sent everything.

        Args:
            now: in seconds since 1970.
        """
        reading = self.reading
        if reading is None or reading.is_caught_up or not reading.moment:
            return 0.0
        return max(now - reading.moment, 0.0)

    @property
    def is_paused(self) -> bool:
        """Whether its client wants nothing for now."""
        return self._is_paused

    def filter_costs(self) -> Iterator[FilterCost]:
        """What its filter costs where it is decided of what is read from the log."""
        source = self.reading if self.reading is not None else self.tail if self._in_tail else None
        return iter(()) if source is None else source.filter_costs(self.subscription)

    @property
    def has_had_enough(self) -> bool:
        """Whether it has been sent as many messages as were asked for."""
        return self.left == 0

    @property
    def needs_care(self) -> bool:
        """Whether messages have to be counted, or their moments matter."""
        asked_for = (self.left, self.rate, self.timeline, self.records)
        return any(one is not None for one in asked_for)

    def recipients(self) -> LoggedTopics | PagedRecords:
        """Who gets what is read for it."""
        return self.records or LoggedTopics(self.listener.engine)

    def begin(self, subscription: Subscription, span: Span) -> None:
        """Begin to send messages.

        Args:
            subscription: to whom.
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
        """Send nothing more until it is resumed."""
        self._is_paused = True
        self._stop()

    def unpause(self) -> Company | None:
        """Take note that it is not to be paused any more.

        Returns:
            With which others of its connection it may be read for from now on; None if there is
            nothing to be read now.
        """
        was_paused, self._is_paused = self._is_paused, False
        if not was_paused or not self._is_open or self._span is None:
            return None
        alone = self.subscription.deletions or any(
            one is not None for one in (self.left, self.timeline, self.records)
        )
        return Company(self._span, self.rate, self.tail, self if alone else None)

    def cancel(self) -> None:
        """Send nothing more, for ever."""
        self._is_open = False
        self._stop()
        self._end_live()
        self._release()
        if self.records is not None:
            self.records.close()

    def _needed_from(self) -> int:
        """The first txid that it still has to read, which the log must keep for it."""
        if self.reading is not None:
            return self.reading.position + 1
        if self._in_tail:
            return self.tail.position + 1
        if self._live is not None or self._span is None:
            return self.log.last_txid + 1
        return self._span.after + 1

    def _stop(self) -> None:
        """Leave whatever reads, and remember how far that was."""
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

    def _rest(self, position: int) -> Span:
        assert self._span is not None  # noqa: S101 - what has been read from began
        return replace(self._span, after=position)

    def _read(self) -> None:
        assert self._span is not None  # noqa: S101 - it has begun
        read_for((self,), self._span)

    # ---- told by who reads

    def reached(self, position: int) -> bool:
        """The log has been read up to a txid; whether to say it again. See `ReadFor`."""
        has_more = False
        if not self._is_complete and position >= self._subscribed_at and not self._has_end:
            has_more = self._complete(position)
        if self._live is not None and self._live.holds_too_much:
            self._read_for_itself()
        return has_more

    def is_behind(self) -> None:
        """The client does not keep up."""
        if self._live is not None:
            self._read_for_itself()

    def caught_up(self, position: int) -> None:
        """Everything has been read: go where messages come from without a reading of its own."""
        if not self._is_complete or self._has_end or self.needs_care or self._live is not None:
            return
        if self.subscription.deletions:  # which nobody else is told of
            return
        if self._terms.is_live:
            self._stop()
            self._live = Live(self.subscription, self.listener.engine.topics, self.log.last_txid)
            read_for((self,), replace(self._rest(position), last=self._live.last_txid))
        elif self.tail.join(self, position):
            self._stop()
            self._in_tail = True
            self.tail.run()

    def fell_behind(self) -> None:
        """The client did not keep up with the tail."""
        self._read_for_itself()

    def finished(self, position: int) -> bool:
        """The end of what was to be read has been reached; whether to say it again."""
        if self._live is None and self._complete(position):
            return True
        self._stop()
        if self._live is not None:
            self._live.release()
            return False
        self._is_open = False
        self._release()
        return False

    def failed(self, problem: JournalUnreadable) -> None:
        """What is to be sent next cannot be read; the subscription ends, and its client knows.

        There is an ack that says so while the replay is not complete, if that was asked for. Later
        there is none, and the client is disconnected: it comes back for what it has not got.
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
        """Say that the replay is complete, when nothing waits to be conflated any more.

        Returns:
            Whether something does; some of it has left.
        """
        conflater = self.subscription.conflater
        if self._is_complete:
            return False
        if conflater is not None and conflater.release_some(_LET_GO_AT_ONCE):
            return True
        self._is_complete = True
        if self._terms.on_completed is not None:
            self.listener.send(self._terms.on_completed(self.log.bookmark_at(position)))
        return False

    # ---- where to go on

    def places(self, position: int) -> list[str]:
        """Where to go on, here and at other instances, for whoever has got the log up to a txid.

        Of what has come out of the log, messages that are conflated may not have been sent yet, nor
        ever be on a page: then it is not known.
        """
        if self.timeline is not None or self.records is not None:
            return []
        return self.log.places(min(position, self.log.durable))

    def _report_later(self) -> None:
        clock = self.listener.engine.clock
        clock.call_later(self._terms.persisted_interval, self._report)

    def _report(self) -> None:
        """Say how far the log is safe, if that is further than last time."""
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


def read_for(replays: Sequence[Replay], span: Span) -> None:
    """Begin to read a part of the log for some replays of a connection."""
    reading = Reading(replays, span)
    for replay in replays:
        replay.reading = reading
    reading.run()


def _nothing() -> None:
    """Let go of no file."""
