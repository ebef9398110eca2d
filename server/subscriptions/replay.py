"""A bookmark subscription: messages from the transaction log, from some point on, in their order.

The log is the only source, also for what is published later: a replay that has read all there is
waits until more is on stable storage, and reads on. So there is no seam between replay and live
where a message could be lost or come twice, and nothing reaches the client that a crash could take
back.

It goes at the client's pace. While the client has unread data nothing is read, so that replays fill
nobody's memory; of the log, a slice is read at a time.

    READING --all read--> WAITING --more is durable--> READING        any state --cancel--> closed
    READING --client is behind, or the rate is used up--> PACED --timer--> READING

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.expressions.context import NO_CONTEXT, MessageContext
from server.journal import Entry, Topic
from server.security.entitlement import Permission
from server.subscriptions.envelope import Envelope, correlation_key, iso_timestamp
from server.subscriptions.matching import FilterSet
from server.wire.framing import frame_head
from server.wire.header import Header, json_text

if TYPE_CHECKING:
    from server.journal import Cursor, Span
    from server.session import Session
    from server.subscriptions.rate import Rate
    from server.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_BEHIND_SECONDS: Final = 0.01
"""Until it is looked again whether a client has read what it was sent."""
_SLICE: Final = 256
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """What a bookmark subscription asks for beside topic, filter and form.

    Attributes:
        span: the part of the log.
        most: how many messages at most, None for all.
        rate: how fast, None for as fast as the client reads.
        is_paused: whether it begins paused.
        on_completed: makes the ack that tells that the replay is complete; None if nobody asked.
        on_persisted: makes the acks that tell from time to time how far the log is safe.
    """

    span: Span
    most: int | None = None
    rate: Rate | None = None
    is_paused: bool = False
    on_completed: Callable[[], Header] | None = None
    on_persisted: Callable[[str], Header] | None = None


class Replay:
    """What sends the messages of one bookmark subscription.

    Args:
        log: the transaction log.
        terms: what was asked for.
    """

    def __init__(self, log: TransactionLog, terms: ReplayTerms) -> None:
        self._log = log
        self._terms = terms
        self._left = terms.most
        self._is_open = False
        self._is_running = False  # a step is due, or something will make it so
        self._is_complete = False
        self._is_paused = terms.is_paused
        self._subscribed_at = log.last_txid
        self._reported = 0
        self._unsent: deque[Entry] = deque()
        self._heads: dict[Topic, bytes] = {}
        self._cancel_timer: Callable[[], None] = _nothing
        self._release: Callable[[], None] = _nothing

    def begin(self, subscription: Subscription) -> None:
        """Begin to send messages to a subscription."""
        session = subscription.session
        engine = session.engine
        self._subscription = subscription
        self._session: Session = session
        self._filters = FilterSet(
            engine.settings.message_types[session.message_type], engine.settings.functions
        )
        if subscription.filter is not None:
            self._filters.add(subscription.filter)
        self._cursor: Cursor = self._log.journal.replay(self._terms.span, self._wants)
        self._release = self._log.hold(lambda: self._cursor.position + 1)
        self._tail = b',"sids":' + json_text(subscription.sub_id) + b"}"
        self._is_open = True
        self._run()
        if self._terms.on_persisted is not None:
            self._report_later()

    def pause(self) -> None:
        """Send nothing more until it is resumed."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on where it was paused."""
        if self._is_paused:
            self._is_paused = False
            if self._terms.rate is not None:
                self._terms.rate.restart()
            self._run()

    def cancel(self) -> None:
        """Send nothing more, for ever."""
        self._is_open = False
        self._cancel_timer()
        self._release()
        self._unsent.clear()

    def _run(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._session.engine.slices.start(self)

    def step(self) -> bool:
        """See `Sliced.step`."""
        more = self._step()
        if not more:
            self._is_running = False
        return more

    def _step(self) -> bool:
        if not self._is_open or self._is_paused:
            return False
        if self._session.is_behind():
            self._run_later(_BEHIND_SECONDS)
            return False
        if not self._unsent:
            self._unsent.extend(self._cursor.read(_SLICE))
        if not self._send():
            return False
        if self._cursor.is_finished or self._left == 0:
            self._complete()
            self.cancel()
            return False
        if self._cursor.position >= self._subscribed_at and not self._has_end:
            self._complete()
        if not self._cursor.is_caught_up:
            return True
        self._wait()
        return False

    @property
    def _has_end(self) -> bool:
        span = self._terms.span
        return span.last is not None or span.before is not None or bool(span.until)

    def _send(self) -> bool:
        """Send what has been read; False if some of it has to wait."""
        rate = self._terms.rate
        now = self._session.engine.clock.now()
        chunks: list[bytes] = []
        while self._unsent and self._left != 0:
            entry = self._unsent[0]
            if self._matches(entry):
                if rate is not None and (delay := rate.delay(entry, now)) > 0:
                    self._run_later(delay)
                    break
                frame = self._frame(entry)
                chunks += frame
                if self._session.engine.hooks.watches_deliveries:
                    self._tell_watchers(entry, frame[1])
                if self._left is not None:
                    self._left -= 1
            self._unsent.popleft()
        if chunks:
            self._session.outbox.write(b"".join(chunks))
        return not self._unsent or self._left == 0

    def _run_later(self, delay: float) -> None:
        self._cancel_timer()
        clock = self._session.engine.clock
        self._cancel_timer = clock.call_later(delay, self._run_from_timer)

    def _run_from_timer(self) -> None:
        self._run()
        self._session.engine.flush()

    def _wait(self) -> None:
        """Go on when there is more, or when the time of the end has come."""
        engine, before = self._session.engine, self._terms.span.before
        if before is not None:
            rest = before / _MICROSECONDS - engine.clock.now()
            if rest <= 0 and self._log.durable >= self._log.last_txid:
                self._complete()
                self.cancel()
                return
            self._run_later(max(rest, _BEHIND_SECONDS))
        self._log.when_longer(self._run)

    def _complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            if self._terms.on_completed is not None:
                self._session.send(self._terms.on_completed())

    # ---- persisted acks

    def _report_later(self) -> None:
        session = self._session
        session.engine.clock.call_later(session.options.ack_conflation, self._report)

    def _report(self) -> None:
        """Say how far the log is safe, if that is further than last time."""
        if not self._is_open or not self._session.is_open:
            return
        if self._log.durable > self._reported and self._terms.on_persisted is not None:
            self._reported = self._log.durable
            bookmark = self._log.durable_bookmark()
            if bookmark is not None:
                self._session.send(self._terms.on_persisted(bookmark))
                self._session.engine.flush()
        self._report_later()

    # ---- messages

    def _wants(self, topic: Topic) -> bool:
        """Whether a topic is one that the subscription is for, and its user may read."""
        session, selector = self._session, self._subscription.selector
        return (
            topic.message_type == session.message_type
            and selector.matches(topic.name)
            and session.find_topic(topic.name).is_journaled
            and session.may(Permission.READ_TOPIC, topic.name)
        )

    def _matches(self, entry: Entry) -> bool:
        if not self._filters:
            return True
        context = NO_CONTEXT
        if self._filters.asks_for_context:
            context = _context_of(entry)
        return bool(self._filters.match(entry.body, context))

    def _tell_watchers(self, entry: Entry, body: bytes) -> None:
        hooks, topic = self._session.engine.hooks, entry.topic
        correlation_id = entry.correlation_id.decode("utf-8", "surrogateescape")
        envelope = Envelope(None, entry.timestamp / _MICROSECONDS, correlation_id)
        envelope.bookmark = entry.bookmark
        for watcher in hooks.delivery_watchers(topic.message_type, topic.name):
            watcher(self._session, topic.name, (body,), envelope)

    def _frame(self, entry: Entry) -> tuple[bytes, bytes]:
        """The head and the body of a message."""
        presentation = self._subscription.presentation
        body = entry.body
        if presentation.changes_bodies:
            body = presentation.finish(presentation.cut(body))
        left = self._heads.get(entry.topic)
        if left is None:
            left = self._heads[entry.topic] = b'{"c":"p","t":' + json_text(entry.topic.name)
        header = b'%b%b%b,"bm":"%d|%d|","l":%d%b%b%b' % (
            left,
            _key_header(entry) if presentation.sow_key else b"",
            b',"ts":"%b"' % iso_timestamp(entry.timestamp / _MICROSECONDS).encode()
            if presentation.timestamp
            else b"",
            entry.client,
            entry.sequence,
            len(body),
            correlation_key(entry.correlation_id.decode("utf-8", "surrogateescape")),
            b',"user_id":' + json_text(entry.origin.auth_id) if entry.origin.auth_id else b"",
            self._tail,
        )
        return frame_head(header, len(body)), body


def _key_header(entry: Entry) -> bytes:
    if entry.given_key:
        return b',"k":' + json_text(entry.given_key.decode("utf-8", "surrogateescape"))
    return b',"k":"%d"' % entry.sow_key if entry.sow_key else b""


def _context_of(entry: Entry) -> MessageContext:
    """What filters may ask about a message of the log besides its fields."""
    context = MessageContext()
    context.topic_name = entry.topic.name
    context.message_size = len(entry.body)
    context.correlation_id = entry.correlation_id.decode("utf-8", "surrogateescape") or None
    context.bookmark = entry.bookmark
    context.last_updated = entry.timestamp / _MICROSECONDS
    context.user = entry.origin.auth_id or None
    if entry.given_key or entry.sow_key:
        context.sow_key = entry.given_key.decode("utf-8", "surrogateescape") or str(entry.sow_key)
        context.sow_key_hash = entry.sow_key or None
    return context


def _nothing() -> None:
    """Cancel no timer, and let go of no file."""
