"""Acknowledgements of the messages of a queue: done, cancelled (returned) or expired.

Source: AMPS User Guide, Acknowledging Messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from server.expressions import to_text
from server.queues.core.inspection import all_offsets
from server.queues.core.states import GONE, SENT
from server.queues.topic.filter_matcher import ConsumerFilter
from server.queues.topic.queue_journal import NO_PUBLISHER
from server.storage.journal import JournalUnavailableError

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.queues.core import AckOutcome, PublisherSequence, Queue
    from server.queues.topic.context import QueueServices
    from server.queues.topic.filter_matcher import QueueFilterMatcher
    from server.queues.topic.queue_journal import QueueJournal

_Item = TypeVar("_Item")

_LOOKUP_BATCH_SIZE: Final = 512
"""Messages examined per time slice."""


class AckTerms(NamedTuple):
    """The terms of an acknowledgement: its kind, and the client that sends it.

    Attributes:
        outcome: the kind of acknowledgement.
        client: the number of the client's session.
        publisher_sequence: its client hash and the sequence number of its command, 0 for none.
        delay: microseconds until returned messages are available again; None for the queue's
            default.
    """

    outcome: AckOutcome
    client: int
    publisher_sequence: tuple[int, int] = NO_PUBLISHER
    delay: int | None = None


class MessageSearchBatch(NamedTuple):
    """The result of one batch of a search for messages.

    Attributes:
        examined_count: the number of messages examined.
        offsets: the offsets in the queue of the messages found.
    """

    examined_count: int
    offsets: Sequence[int]


class QueueAckResult(NamedTuple):
    """The result of an acknowledgement.

    Attributes:
        examined_count: the number of messages examined.
        matched_count: the number of messages that it referred to.
        affected_count: the number of messages that it took effect on.
    """

    examined_count: int
    matched_count: int
    affected_count: int


class QueueAckHandler:
    """Executes acknowledgements for one queue.

    Args:
        core: the queue.
        queue_journal: appends the queue's events to the log.
        make_matcher: makes a matcher of filters, given the callback for a filter that fails.
        on_change: called when messages may have left, or may be delivered again.
        services: the server's services for the queue.
    """

    def __init__(
        self,
        core: Queue,
        queue_journal: QueueJournal,
        make_matcher: Callable[[Callable[[ConsumerFilter, Exception], None]], QueueFilterMatcher],
        on_change: Callable[[], None],
        services: QueueServices,
    ) -> None:
        self._core: Final = core
        self._queue_journal: Final = queue_journal
        self._make_matcher: Final = make_matcher
        self._on_change: Final = on_change
        self._services: Final = services

    def defer(self, execute: Callable[[], None]) -> None:
        """Have acknowledgements executed soon; see `DeliveryScheduler.add_acknowledgements`."""
        self._services.deliveries.add_acknowledgements(execute)

    def acknowledge(
        self, bookmarks: Sequence[PublisherSequence], terms: AckTerms
    ) -> QueueAckResult:
        """Acknowledge messages by their bookmarks.

        Raises:
            JournalUnavailableError: it cannot be recorded now. It takes effect nevertheless, and a
                restart may undo it.
        """
        now_us = self._services.now_us
        result = self._core.acknowledge(bookmarks, now_us, terms.client, terms.outcome, terms.delay)
        self._record(terms)
        return QueueAckResult(
            len(bookmarks), len(bookmarks) - len(result.refusals), result.affected_count
        )

    def extend_leases(
        self, bookmarks: Sequence[PublisherSequence], period: int | None, terms: AckTerms
    ) -> QueueAckResult:
        """Extend or shorten leases of a client.

        Args:
            bookmarks: the bookmarks of the messages.
            period: the duration of the leases from now on, in microseconds; None for the queue's
                lease period.
            terms: identifies the client and its command.

        Raises:
            JournalUnavailableError: the command's number cannot be recorded now.
        """
        now_us = self._services.now_us
        lease_period = self._core.settings.lease_period if period is None else period
        affected_count = 0
        if lease_period is not None:
            affected_count = self._core.extend_leases(
                bookmarks, now_us + lease_period, now_us, terms.client
            ).affected_count
        self._record(terms)
        return QueueAckResult(len(bookmarks), affected_count, affected_count)

    def find_all(self) -> Iterator[MessageSearchBatch]:
        """Find all messages of the queue, leased or not, in batches."""
        for offsets in _batches(all_offsets(self._core)):
            yield MessageSearchBatch(len(offsets), offsets)

    def find_by_bookmarks(
        self, bookmarks: Sequence[PublisherSequence]
    ) -> Iterator[MessageSearchBatch]:
        """Find the messages of the queue by their bookmarks, in batches."""
        entries = self._core.lifecycle.entries
        for batch in _batches(iter(bookmarks)):
            candidates = map(entries.find, batch)
            yield MessageSearchBatch(
                len(batch),
                [
                    offset
                    for offset in candidates
                    if offset is not None and entries.state(offset) not in (GONE, SENT)
                ],
            )

    def find_by_filter(self, expr: Expr) -> Iterator[MessageSearchBatch]:
        """Find the messages that match a filter, leased or not, in batches.

        Raises:
            UnmatchedError: messages cannot be read at the moment.
            Exception: the exception that the filter raised.
        """
        select = self._make_selector(expr)
        for batch in self.find_all():
            yield batch._replace(offsets=select(batch.offsets))

    def restrict_to_filter(
        self, permitted: Expr, batches: Iterator[MessageSearchBatch]
    ) -> Iterator[MessageSearchBatch]:
        """Restrict found messages by a filter; the others are not counted either.

        Raises:
            UnmatchedError: messages cannot be read at the moment.
            Exception: the exception that the filter raised.
        """
        select = self._make_selector(permitted)
        for batch in batches:
            permitted_offsets = select(batch.offsets)
            yield MessageSearchBatch(len(permitted_offsets), permitted_offsets)

    def _make_selector(self, expr: Expr) -> Callable[[Sequence[int]], list[int]]:
        """Return a function that selects messages by a filter."""
        matcher = self._make_matcher(_fail)
        matcher.add(ConsumerFilter(to_text(expr), expr))
        txids = self._core.lifecycle.entries.txids

        def select(offsets: Sequence[int]) -> list[int]:
            matched = matcher.match(txids(offsets)) if offsets else ()
            return [offset for offset, filters in zip(offsets, matched, strict=True) if filters]

        return select

    def find_by_sow_keys(self, keys: Iterable[str]) -> Iterator[MessageSearchBatch]:
        """Find messages by their SOW keys, in batches."""
        numbers = {int(key) for key in keys if key.isascii() and key.isdigit()}
        sow_key = self._core.lifecycle.entries.sow_key
        for batch in self.find_all():
            matching_offsets = [offset for offset in batch.offsets if sow_key(offset) in numbers]
            yield MessageSearchBatch(len(matching_offsets), matching_offsets)

    def acknowledge_offsets(self, offsets: Sequence[int], terms: AckTerms) -> int:
        """Acknowledge messages by their offsets.

        Returns:
            The number of messages that it took effect on.

        Raises:
            JournalUnavailableError: as for `acknowledge`.
        """
        now_us = self._services.now_us
        result = self._core.acknowledge_offsets(
            offsets, now_us, terms.client, terms.outcome, terms.delay
        )
        self._record(terms)
        return result.affected_count

    @property
    def is_log_backlogged(self) -> bool:
        """True if the log accepts entries, but too many wait to be written to it."""
        journal = self._services.log.journal
        return journal.is_backlogged and journal.write_error is None

    def _record(self, terms: AckTerms) -> None:
        self._queue_journal.write(terms.publisher_sequence)
        self._on_change()
        if not self._queue_journal.is_up_to_date:
            raise JournalUnavailableError("the transaction log cannot be written at the moment")


def _batches(items: Iterator[_Item]) -> Iterator[Sequence[_Item]]:
    """Split into batches of the size of a time slice."""
    while batch := list(islice(items, _LOOKUP_BATCH_SIZE)):
        yield batch


def _fail(_: ConsumerFilter, error: Exception) -> None:
    raise error
