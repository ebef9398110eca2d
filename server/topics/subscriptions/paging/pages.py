"""The paginated subscriptions of one topic.

Subscriptions with the same filter and the same order share a result set, which is kept as long as
any page is cut from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from server.topics.subscriptions.delivery.record_conflation import RecordMessageForm
from server.topics.subscriptions.delivery.record_delivery import RecordDelivery
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import FilterSet, match_record
from server.topics.subscriptions.paging.page import FindRecord, Page
from server.topics.subscriptions.paging.result_set import ResultSet
from server.topics.subscriptions.subscription import PageTerms

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.expressions.tree import OrderTerm
    from server.message_types.base import MessageType
    from server.storage.sow.records import RecordChange
    from server.topics.subscriptions.delivery.delta import DeltaEncoder
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription


class _PageEntry(NamedTuple):
    """A paginated subscription's state.

    Attributes:
        page: its page.
        filter: its filter, None for all records.
    """

    page: Page
    filter: Filter | None


class TopicPages:
    """The paginated subscriptions of one topic, and their pages.

    Args:
        message_type: parses bodies.
        functions: the functions that filters may call.
        find_record: finds records by SOW key.
        delta_encoder: makes deltas.
    """

    __slots__ = (
        "_delta_encoder",
        "_entries",
        "_filters",
        "_find_record",
        "_message_type",
        "_result_sets",
    )

    def __init__(
        self,
        message_type: MessageType,
        functions: Functions,
        find_record: FindRecord,
        delta_encoder: DeltaEncoder,
    ) -> None:
        self._message_type: Final = message_type
        self._filters: Final = FilterSet(message_type, functions, self._end_failed_filter)
        self._find_record: Final = find_record
        self._delta_encoder: Final = delta_encoder
        self._entries: Final[dict[Subscription, _PageEntry]] = {}
        self._result_sets: Final[list[tuple[Filter | None, tuple[OrderTerm, ...], ResultSet]]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription in self._entries

    def page(self, subscription: Subscription) -> Page:
        """Return the page of a subscription."""
        return self._entries[subscription].page

    def attach(
        self,
        subscription: Subscription,
        terms: PageTerms,
        make_delivery: Callable[[Subscription, RecordMessageForm], RecordDelivery],
    ) -> None:
        """Begin a page, held back until it is released.

        Args:
            subscription: the page's subscription.
            terms: the range and the order.
            make_delivery: returns a delivery to a subscription for messages of a form.
        """
        content_filter = subscription.content_filter
        filter_ = None if content_filter is None else self._filters.add(content_filter)
        page = Page(
            subscription,
            terms,
            self._result_set_for(filter_, terms),
            self._find_record,
            self._delta_encoder,
            partial(make_delivery, subscription),
        )
        page.result_set.attach(page)
        self._entries[subscription] = _PageEntry(page, filter_)

    def detach(self, subscription: Subscription) -> None:
        """End a page."""
        page, filter_ = self._entries.pop(subscription)
        page.end()
        if filter_ is not None:
            self._filters.remove(filter_)
        self._result_sets[:] = [kept for kept in self._result_sets if kept[-1].has_pages]

    def cost_of(self, subscription: Subscription, topic: str) -> FilterCost | None:
        """See `SubscriberSet.cost_of`."""
        filter_ = self._entries[subscription].filter
        return None if filter_ is None else self._filters.cost(filter_, topic)

    def apply_change(
        self, change: RecordChange, envelope: Envelope, message: RecordMessage
    ) -> None:
        """Apply a change of a record, and notify subscribers."""
        matched: tuple[Filter, ...] = ()
        if change.record is not None and self._filters:
            matched = match_record(self._filters, change.record, envelope)
        for filter_, _, result_set in self._result_sets:
            matches = filter_ is None or filter_ in matched
            try:
                result_set.apply_change(
                    change.record if matches else None, change.previous, message
                )
            except Exception as error:  # no error of a subscription may fail the change
                end_failed_subscriptions(
                    [
                        one
                        for one, its in self._entries.items()
                        if its.page.result_set is result_set
                    ],
                    error,
                )

    def _end_failed_filter(self, filter_: Filter, error: Exception) -> None:
        """End the subscriptions that have a filter, because it has failed."""
        end_failed_subscriptions(
            [one for one, its in self._entries.items() if its.filter is filter_], error
        )

    def _result_set_for(self, filter_: Filter | None, terms: PageTerms) -> ResultSet:
        """Return a complete result set, or else a new one, which has to be filled."""
        for known_filter, order_by, result_set in self._result_sets:
            if known_filter is filter_ and order_by == terms.order_by and result_set.is_complete:
                return result_set
        new_result_set = ResultSet(self._message_type, terms.order_by)
        self._result_sets.append((filter_, terms.order_by, new_result_set))
        return new_result_set
