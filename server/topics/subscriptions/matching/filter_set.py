"""Finds the filters that a message matches, at a cost that grows with the matches, not the filters.

Theory of operation. Subscriptions with the same filter share one `Filter`, which is decided once
per message. All filters of a topic read their fields from one tuple, so that a body is parsed once,
however many filters there are.

Most filters of large systems demand that some field equals a value: `/symbol = 'IBM'`, alone or
ANDed with other terms. One such term of each filter goes into an index: field -> value -> filters.
A lookup by the message's own value of the field returns candidates. Only these are tested, for the
terms that the index did not decide. A filter without such a term is tested against every message.
If several terms could be indexed, the index gets the term whose value has the fewest filters so
far: a value that all filters demand does not discriminate.

Filters that differ only by constants have one form (server/expressions/filter_form.py). What
follows from the form, such as the code of its tests, is kept once (`SharedForm`).

The index and its terms are in `field_index.py`. The search effort that filters may cost a
publisher is limited (`regex_budget.py`); a filter that exceeds the limit fails. Filter costs are
sampled from few messages (`filter_costs.py`).

Fields that every message is looked up or tested by always have a position in the tuple. Of the
others only the first ones have; a form with further fields reads them from the body when one of its
filters is a candidate. When most fields are unused, all get new positions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import dropwhile
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from server.expressions import BUILTINS, Functions
from server.expressions.filter_form import (
    ContentFilter,
)
from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.expressions.regex.budget import TooCostlyError
from server.expressions.regex.patterns import count_regexes
from server.message_types.base import MessageType, Value
from server.message_types.bulk import MAX_BULK_FILTERS
from server.storage.sow.record_context import context_of
from server.topics.subscriptions.matching.equality_lookup import EqualityLookup
from server.topics.subscriptions.matching.filter_costs import CostSampler, FilterCost
from server.topics.subscriptions.matching.filter_layout import Filter, FilterLayout
from server.topics.subscriptions.matching.regex_budget import (
    ConnectionFailureCounter,
    LongSearchCounter,
)
from server.topics.subscriptions.matching.vectorized import BatchMatcher

if TYPE_CHECKING:
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.envelope import Envelope

OnFailure: TypeAlias = Callable[[Filter, Exception], None]
"""Callback for a filter that has failed, with the error."""

FilterOwners: TypeAlias = Callable[[Filter], Collection[int]]
"""Returns the owners of a filter: the numbers of their connections."""


def _no_owners(_filter: Filter) -> Collection[int]:
    return ()


class FilterSet:
    """The distinct filters on one topic.

    Args:
        message_type: parses bodies.
        functions: the functions that filters may call.
        on_failure: called with each filter that fails.
        owners_of: returns the owners of a filter: the numbers of their connections.
    """

    def __init__(
        self,
        message_type: MessageType,
        functions: Functions,
        on_failure: OnFailure,
        owners_of: FilterOwners = _no_owners,
    ) -> None:
        self._message_type = message_type
        self._functions = functions
        self._on_failure = on_failure
        self._owners_of = owners_of
        self._filters: dict[ContentFilter, Filter] = {}
        self._context_filter_count = 0  # filters that read the context
        self._search_counter = LongSearchCounter()
        self._layout = FilterLayout(message_type, functions, self._search_counter)
        self._cost_sampler = CostSampler()
        self._needs_maintenance = False  # whether the next message needs more than matching
        self._tested_filter: Filter | None = None  # the filter that an error is attributed to
        self._batch_matcher = BatchMatcher(message_type)

    def __bool__(self) -> bool:
        return bool(self._filters)

    @property
    def needs_context(self) -> bool:
        """True if some filter reads more than the body."""
        return self._context_filter_count > 0

    def add(self, content_filter: ContentFilter) -> Filter:
        """Add a user to a filter, and return the filter, shared by all users of an equal one."""
        filter_ = self._filters.get(content_filter)
        if filter_ is None:
            form = self._layout.form_of(content_filter)
            filter_ = Filter(content_filter, form, self._cost_sampler)
            self._layout.add_filter(filter_)
            self._filters[content_filter] = filter_
            self._context_filter_count += form.needs_context
        filter_.user_count += 1
        return filter_

    def remove(self, filter_: Filter) -> None:
        """Remove a user from a filter, and drop the filter if it has no users left."""
        filter_.user_count -= 1
        if not (filter_.user_count or filter_.has_failed):
            self._drop_filter(filter_)

    def _drop_filter(self, filter_: Filter) -> None:
        del self._filters[filter_.content_filter]
        self._context_filter_count -= filter_.form.needs_context
        self._layout.remove_filter(filter_)

    def count_messages(self, messages: int) -> None:
        """Count messages that are about to be matched, to sample the cost of some of them."""
        cost_sampler = self._cost_sampler
        cost_sampler.messages += messages
        if cost_sampler.messages >= cost_sampler.next_sample_at:
            self._needs_maintenance = True

    def batch_matcher(self, messages: int) -> BatchMatcher | None:
        """Return the matcher that decides all filters for a batch of messages together.

        Args:
            messages: size of the batch, counted by `count_messages` already.

        Returns:
            None if the messages are to be matched one by one.
        """
        if self._needs_maintenance or len(self._filters) > MAX_BULK_FILTERS:
            return None
        plan = self._layout.plan or self._layout.make_plan()
        batch_matcher = self._batch_matcher
        return (
            batch_matcher
            if batch_matcher.is_ready(plan, self._filters.values(), messages)
            else None
        )

    def equality_lookup(self) -> EqualityLookup | None:
        """Return the finder of filters by the value of one field, if that decides all filters."""
        if self._needs_maintenance:
            return None
        plan = self._layout.plan or self._layout.make_plan()
        return plan.equality_lookup

    def is_lookup_current(self, lookup: EqualityLookup) -> bool:
        """Return True if `lookup`, from `equality_lookup`, still decides exactly these filters."""
        plan = self._layout.plan
        return plan is not None and plan.equality_lookup is lookup and not self._needs_maintenance

    def is_matcher_current(self, matcher: BatchMatcher) -> bool:
        """Return True if `matcher`, from `batch_matcher`, still decides exactly these filters."""
        return self._layout.plan is matcher.state and not self._needs_maintenance

    @property
    def needs_maintenance(self) -> bool:
        """True if the next message needs more than to be matched."""
        return self._needs_maintenance

    def cost(self, filter_: Filter, topic: str) -> FilterCost:
        """Return the cost of a filter.

        Args:
            filter_: a filter of this set.
            topic: the topic of this set.
        """
        return filter_.cost(
            self._cost_sampler, topic, filter_.text, filter_.user_count, len(self._filters)
        )

    def match(self, body: bytes, context: MessageContext = NO_CONTEXT) -> tuple[Filter, ...]:
        """Return the filters that a message matches.

        Args:
            body: the message's body.
            context: properties of the message other than its fields, for filter functions.
        """
        if self._needs_maintenance and (sampled := self._maintain(body, context)) is not None:
            return sampled
        extract, scanned, lookups, has_tests, _ = self._layout.plan or self._layout.make_plan()
        if has_tests:
            self._search_counter.messages += 1
        values = extract(body)
        matched: list[Filter] = []
        self._tested_filter = None
        try:
            for filter_ in scanned:
                self._tested_filter = filter_
                if self._layout.is_match(filter_, values, body, context):
                    matched.append(filter_)
            for position, find, find_any in lookups:
                value = values[position]
                try:
                    entry = find(value)
                except TypeError:  # an array, which is not hashable
                    entry = list(find_any(value))
                if isinstance(entry, Filter) and entry.test is None:  # the most frequent case
                    matched.append(entry)
                elif entry is not None:
                    self._test_candidates(entry, values, body, context, matched)
        except Exception as error:  # a failed filter must not affect the others
            if self._tested_filter is None:
                raise
            matched += self._match_after_failure(values, body, context, self._tested_filter, error)
        if len(matched) > 1:
            return tuple(dict.fromkeys(matched))  # two values may find the same filter
        return (matched[0],) if matched else ()

    def _test_candidates(
        self,
        entry: Filter | Iterable[Filter],
        values: tuple[Value, ...],
        body: bytes,
        context: MessageContext,
        matched: list[Filter],
    ) -> None:
        """Append the filters that match to `matched`, of one candidate or several."""
        for candidate in (entry,) if isinstance(entry, Filter) else entry:
            self._tested_filter = candidate
            if self._layout.is_match(candidate, values, body, context):
                matched.append(candidate)

    def _maintain(self, body: bytes, context: MessageContext) -> tuple[Filter, ...] | None:
        """Do the periodic work that precedes the matching of a message.

        Returns:
            The filters that match, if the message was a cost sample; else None.
        """
        self._needs_maintenance = False
        cost_sampler = self._cost_sampler
        return (
            self._match_sampled(body, context)
            if cost_sampler.messages >= cost_sampler.next_sample_at
            else None
        )

    def _match_sampled(self, body: bytes, context: MessageContext) -> tuple[Filter, ...]:
        """Return the filters that a message matches, and sample their cost. See `match`."""
        extract, _, _, has_tests, _ = self._layout.plan or self._layout.make_plan()
        if has_tests:
            self._search_counter.messages += 1
        sample = self._cost_sampler.begin_sample()
        start_s = perf_counter()
        values = extract(body)
        sample.reading_seconds = sample.elapsed_since(start_s)
        candidates = self._layout.candidates(values)
        timed = sample.tests_to_time(len(candidates))
        matched: list[Filter] = []
        for number, filter_ in enumerate(candidates):
            start_s = perf_counter()
            try:
                if self._layout.is_match(filter_, values, body, context):
                    matched.append(filter_)
            except Exception as error:  # a failed filter must not affect the others
                matched += self._match_after_failure(values, body, context, filter_, error)
                break
            if filter_.test is not None and number in timed:
                sample.test_times.append((filter_, sample.elapsed_since(start_s) * timed.step))
        self._cost_sampler.end_sample(sample)
        return tuple(dict.fromkeys(matched))

    def _match_after_failure(
        self,
        values: tuple[Value, ...],
        body: bytes,
        context: MessageContext,
        failed: Filter,
        problem: Exception,
    ) -> list[Filter]:
        """Evaluate the remaining filters after one has failed. Filters that fail are dropped.

        Args:
            values: the message's fields.
            body: its body.
            context: properties of the message other than its fields, for filter functions.
            failed: the filter that has failed.
            problem: its error.

        Returns:
            The filters that match.
        """
        matched: list[Filter] = []
        failure_counter = ConnectionFailureCounter()
        remaining = dropwhile(lambda one: one is not failed, self._layout.candidates(values))
        for filter_ in remaining:
            error: Exception | None = None
            if filter_ is failed:
                error = problem
            elif failure_counter.is_limit_reached(self._owners_of(filter_)) and count_regexes(
                filter_.form.form.template
            ):
                error = TooCostlyError()
            else:
                try:
                    if self._layout.is_match(filter_, values, body, context):
                        matched.append(filter_)
                except Exception as test_error:  # no error of a filter may fail the publish
                    error = test_error
            if error is not None and not filter_.has_failed:
                if isinstance(error, TooCostlyError):
                    failure_counter.add_failure(self._owners_of(filter_))
                filter_.has_failed = True
                self._drop_filter(filter_)
                self._on_failure(filter_, error)
        return matched


def match_record(
    filters: FilterSet, record: Record, envelope: Envelope | None
) -> tuple[Filter, ...]:
    """Return the filters that a record's state matches; only a new state has an envelope."""
    context: MessageContext = NO_CONTEXT
    if filters.needs_context:
        context = context_of(record)
        if envelope is not None:
            envelope.describe_publisher(context)
    filters.count_messages(1)
    return filters.match(record.body, context)


def _ignore_failure(_filter: Filter, _error: Exception) -> None:
    """Do nothing: without filters there is no failure."""


NO_FILTERS: Final = FilterSet(cast("MessageType", None), BUILTINS, _ignore_failure)
"""The filter set of a topic without filters: always false, and never matched against."""
