"""Matches messages of a queue against its consumers' filters: a `FilterMatcher`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from server.expressions.filter_form import lift_constants
from server.expressions.message_context import NO_CONTEXT
from server.expressions.tree import Call, walk
from server.queues.core import UnmatchedError
from server.storage.journal import JournalUnreadableError
from server.topics.subscriptions.matching.filter_set import FilterSet
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.expressions.message_context import MessageContext
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.queues.core import PublisherSequence
    from server.queues.topic.message_batch import QueueBatchPart
    from server.queues.topic.message_cache import MessageCache
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.matching.filter_layout import Filter


_LEASE_FIELDS: Final = frozenset({"last_leased", "lease_count"})
"""Context fields of a message that may change between matches."""


class ConsumerFilter(NamedTuple):
    """A consumer's filter; equal filters are evaluated once per message.

    Attributes:
        text: its normal form.
        expr: its tree.
    """

    text: str
    expr: Expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerFilter) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class QueueFilterMatcher:
    """Evaluates filters for messages that are identified by their txids.

    Args:
        message_cache: reads the messages.
        message_type: parses bodies.
        functions: the functions that filters may call.
        on_failure: called when a filter fails.
        on_unreadable: called when messages cannot be read.
        leases: returns the number of leases of a message, and the time of the last one, by its
            bookmark.
    """

    def __init__(
        self,
        message_cache: MessageCache,
        message_type: MessageType,
        functions: Functions,
        on_failure: Callable[[ConsumerFilter, Exception], None],
        on_unreadable: Callable[[JournalUnreadableError], None],
        leases: Callable[[PublisherSequence], tuple[int, int]],
    ) -> None:
        self._functions = functions
        self._leases = leases
        self._message_cache = message_cache
        self._filters = FilterSet(message_type, functions, self._report_failure)
        self._on_failure = on_failure
        self._on_unreadable = on_unreadable
        self._consumer_filters: dict[Filter, ConsumerFilter] = {}
        self._compiled_filters: dict[ConsumerFilter, Filter] = {}

    def add(self, content_filter: Hashable) -> None:
        """See `FilterMatcher.add`."""
        consumer_filter = cast(ConsumerFilter, content_filter)
        filter_ = self._filters.add(lift_constants(consumer_filter.expr))
        self._compiled_filters[consumer_filter], self._consumer_filters[filter_] = (
            filter_,
            consumer_filter,
        )

    def discard(self, content_filter: Hashable) -> None:
        """See `FilterMatcher.discard`."""
        filter_ = self._compiled_filters.pop(cast(ConsumerFilter, content_filter))
        del self._consumer_filters[filter_]
        self._filters.remove(filter_)

    def is_volatile(self, content_filter: Hashable) -> bool:
        """See `FilterMatcher.is_volatile`."""
        return any(
            isinstance(node, Call) and self._functions[node.name].context_attribute in _LEASE_FIELDS
            for node in walk(cast(ConsumerFilter, content_filter).expr)
        )

    def cost(self, content_filter: ConsumerFilter, queue: str) -> FilterCost | None:
        """Return the cost of a filter; None if it is not evaluated here.

        Args:
            content_filter: the filter.
            queue: the queue's name.
        """
        filter_ = self._compiled_filters.get(content_filter)
        return None if filter_ is None else self._filters.cost(filter_, queue)

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        """See `FilterMatcher.match`.

        Raises:
            UnmatchedError: the messages cannot be read at the moment.
        """
        results: list[Collection[Hashable]] = []
        try:
            parts = self._message_cache.find(txids)
        except JournalUnreadableError as problem:
            self._on_unreadable(problem)
            raise UnmatchedError(str(problem)) from problem
        for part in parts:
            results += [()] if part is None else self._match_part(part)
        return results

    def _match_part(self, part: QueueBatchPart) -> Sequence[Collection[Hashable]]:
        filters, consumer_filters, batch = self._filters, self._consumer_filters, part.batch
        filters.count_messages(len(part.positions))
        if not filters.needs_context:
            match = filters.match
            return [
                [consumer_filters[matched] for matched in match(body, NO_CONTEXT)]
                for body in part.select_values(batch.bodies)
            ]
        results: list[Collection[Hashable]] = []
        for position in part.positions:
            context = batch.context(position)
            set_lease_context(context, self._leases(batch.bookmark(position)))
            results.append(
                [
                    consumer_filters[matched]
                    for matched in filters.match(batch.bodies[position], context)
                ]
            )
        return results

    def _report_failure(self, filter_: Filter, error: Exception) -> None:
        self._on_failure(self._consumer_filters[filter_], error)


def set_lease_context(context: MessageContext, leases: tuple[int, int]) -> None:
    """Set the number of leases and the time of the last one (microseconds) in a context."""
    count, last = leases
    context.lease_count = count
    context.last_leased = last / MICROSECONDS_PER_SECOND if count else None
