"""The subscriptions of one topic, with their filters.

Topics differ in the use of their subscribers: an ad hoc topic passes on messages that are published
(server/topics/topic.py), a topic with records sends changes of records
(server/topics/subscriptions/record_fanout.py). Both cache prepared deliveries as long as the
subscribers stay the same.

The cost of finding the recipients of a message grows with their number, not with that of all
subscriptions: these are kept by their filters. Each has a number in the order of creation; the
subscriptions of a message are listed in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from server.security.permissions import UNLIMITED
from server.topics.subscriptions.entitlement_limits import entitled
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import NO_FILTERS, FilterSet
from server.topics.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.matching.filter_costs import FilterCost


@mypyc_attr(allow_interpreted_subclasses=True)
class SubscriberSet:
    """The subscriptions of one topic of one message type.

    Args:
        message_type: the type that the topic is scoped to.
        name: the topic's name.
        functions: the functions that filters may call.
    """

    def __init__(self, message_type: MessageType, name: str, functions: Functions) -> None:
        self.message_type = message_type
        self.name = name
        # in their effective form here; `_effective_forms`: by requested form, where the two differ
        self._subscriptions: dict[Subscription, Filter | None] = {}  # with their filters
        self._effective_forms: dict[Subscription, Subscription] = {}
        self._attach_count = 0
        self._literal_count = 0  # subscriptions to this very topic
        self._unfiltered: dict[Subscription, int] = {}  # with their numbers
        self._filter_counts: dict[int, int] = {}  # number of filters, by connection
        self._functions = functions
        self._filters = NO_FILTERS  # shared: most topics never have any

    @property
    def has_subscriptions(self) -> bool:
        """True if a message could have recipients."""
        return bool(self._subscriptions)

    @property
    def is_selective(self) -> bool:
        """True if some messages are filtered, or changed by a permit, for some subscriptions."""
        return bool(self._filters) or bool(self._effective_forms)

    @property
    def subscriptions(self) -> Collection[Subscription]:
        """The subscriptions that could get a message, as requested by their clients."""
        if not self._effective_forms:
            return self._subscriptions.keys()
        requested = {here: subscription for subscription, here in self._effective_forms.items()}
        return [requested.get(here, here) for here in self._subscriptions]

    @property
    def has_literal_subscription(self) -> bool:
        """True if some subscription is to this very topic, and not to a matching pattern."""
        return self._literal_count > 0

    @property
    def subscription_count(self) -> int:
        """Number of subscriptions."""
        return len(self._subscriptions)

    def attach(self, subscription: Subscription, permit: Permit = UNLIMITED) -> None:
        """Deliver messages to a subscription from now on.

        Args:
            subscription: the subscription, as its client requested it.
            permit: its user's permit for the topic.
        """
        self._attach(self._apply_permit(subscription, permit))

    def detach(self, subscription: Subscription) -> None:
        """Stop delivering messages to a subscription, if it is attached."""
        self._detach(self._effective_forms.pop(subscription, subscription))

    def _apply_permit(self, subscription: Subscription, permit: Permit) -> Subscription:
        """Apply a permit to a subscription, and return its effective form here."""
        effective = entitled(subscription, permit, self.message_type)
        if effective is not subscription:
            self._effective_forms[subscription] = effective
        return effective

    def _effective_form(self, subscription: Subscription) -> Subscription:
        """Return the effective form of a subscription here."""
        return self._effective_forms.get(subscription, subscription)

    def _attach(self, subscription: Subscription) -> None:
        self._attach_count += 1
        filter_ = None
        if subscription.content_filter is not None:
            if self._filters is NO_FILTERS:
                self._filters = FilterSet(
                    self.message_type, self._functions, self._end_failed_filter, self._owners_of
                )
            filter_ = self._filters.add(subscription.content_filter)
        self._subscriptions[subscription] = filter_
        if filter_ is None:
            self._unfiltered[subscription] = self._attach_count
        else:
            self._add_owner(filter_, subscription)
            self._cache_writer(filter_)
            number = subscription.subscriber.number
            self._filter_counts[number] = self._filter_counts.get(number, 0) + 1
        self._literal_count += not subscription.selector.is_regex
        self._invalidate_deliveries()

    def _detach(self, subscription: Subscription) -> None:
        if subscription not in self._subscriptions:
            return
        filter_ = self._subscriptions.pop(subscription)
        self._literal_count -= not subscription.selector.is_regex
        if filter_ is None:
            del self._unfiltered[subscription]
        else:
            self._filters.remove(filter_)
            _remove_owner(filter_, subscription)
            self._cache_writer(filter_)
            number = subscription.subscriber.number
            self._filter_counts[number] -= 1
            if not self._filter_counts[number]:
                del self._filter_counts[number]
        self._invalidate_deliveries()

    def cost_of(self, subscription: Subscription) -> FilterCost | None:
        """Return the cost of a subscription's filter; None if it has none or is not attached."""
        filter_ = self._subscriptions.get(self._effective_form(subscription))
        return None if filter_ is None else self._filters.cost(filter_, self.name)

    def _add_owner(self, filter_: Filter, subscription: Subscription) -> None:
        owners = filter_.owners
        if owners is None:
            filter_.owners, filter_.number = subscription, self._attach_count
        elif isinstance(owners, dict):
            owners[subscription] = self._attach_count
        else:
            filter_.owners = {owners: filter_.number, subscription: self._attach_count}

    def _cache_writer(self, filter_: Filter) -> None:
        """Cache writer and id in a filter with one user, if its messages need only an id."""
        owner = filter_.owners
        if owner is None or isinstance(owner, dict):
            filter_.writer = None
        else:
            filter_.sub_id = owner.sub_id
            filter_.writer = self._plain_writer(owner)

    def _plain_writer(self, subscription: Subscription) -> Outbox | None:  # noqa: ARG002 - `Topic` has some
        """Return the writer of a subscription, if its messages need its id and nothing else."""
        return None

    def _invalidate_deliveries(self) -> None:
        """Invalidate the deliveries prepared for the previous subscriptions."""
        raise NotImplementedError

    def _split_unfiltered(self) -> tuple[dict[Subscription, int], dict[Subscription, int]]:
        """Return the subscriptions without a filter, with their numbers.

        Returns:
            Those of connections without any filter here, and those of connections with filters.
        """
        if not self._filter_counts:
            return self._unfiltered, {}
        without_filters: dict[Subscription, int] = {}
        with_filters: dict[Subscription, int] = {}
        for subscription, entry in self._unfiltered.items():
            has_filters = subscription.subscriber.number in self._filter_counts
            (with_filters if has_filters else without_filters)[subscription] = entry
        return without_filters, with_filters

    def _merge_subscriptions(
        self, unfiltered: dict[Subscription, int], filters: Iterable[Filter]
    ) -> list[Subscription]:
        """Return some subscriptions without a filter and those with some filters, in order."""
        numbers = dict(unfiltered)
        for filter_ in filters:
            numbers.update(_numbers_of(filter_))
        return list(numbers) if len(numbers) == 1 else sorted(numbers, key=numbers.__getitem__)

    def end_subscriptions(self, error: Exception) -> None:
        """End all subscriptions, since the messages of the topic cannot be made."""
        end_failed_subscriptions(self._subscriptions, error)

    def _owners_of(self, filter_: Filter) -> Collection[int]:
        """Return the numbers of the connections that have a filter."""
        return {subscription.subscriber.number for subscription in _numbers_of(filter_)}

    def _end_failed_filter(self, filter_: Filter, error: Exception) -> None:
        """End the subscriptions that have a filter, because it has failed."""
        end_failed_subscriptions(list(_numbers_of(filter_)), error)


def _remove_owner(filter_: Filter, subscription: Subscription) -> None:
    owners = filter_.owners
    if not isinstance(owners, dict):
        filter_.owners = None
        return
    del owners[subscription]
    if not owners:
        filter_.owners = None


def _numbers_of(filter_: Filter) -> dict[Subscription, int]:
    """Return a filter's subscriptions, with their numbers."""
    owners = filter_.owners
    if owners is None:
        return {}
    return owners if isinstance(owners, dict) else {owners: filter_.number}
