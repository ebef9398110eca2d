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

The index and its terms are in `field_index.py`. The search effort that filters may cost a
publisher is limited (`regex_budget.py`); a filter that exceeds the limit fails. Filter costs are
sampled from few messages (`filter_costs.py`).

Positions in the tuple never change while filters use them. When most fields are unused, a new
layout is built incrementally: some filters are moved with each message and with each removal of a
filter, until the new layout has all filters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import dropwhile
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from server.expressions import BUILTINS, Functions, references, to_text
from server.expressions.backends.compile_message import Predicate, compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.expressions.regex.budget import TooCostlyError
from server.expressions.regex.patterns import count_regexes
from server.expressions.tree import Call, Expr, Reference, walk
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.bulk import MAX_BULK_FILTERS, BulkExtractor, bulk_extractor
from server.storage.sow.record_context import context_of
from server.topics.subscriptions.matching.equality_lookup import EqualityLookup
from server.topics.subscriptions.matching.field_index import (
    FieldIndex,
    IndexableTerm,
    QuickFind,
    indexable_terms,
)
from server.topics.subscriptions.matching.filter_costs import CostSampler, FilterCost, FilterTime
from server.topics.subscriptions.matching.regex_budget import (
    ConnectionFailureCounter,
    LongSearchCounter,
    SearchBudget,
)
from server.topics.subscriptions.matching.vectorized import BatchMatcher

if TYPE_CHECKING:
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.outbox import Outbox

_FEW_FIELDS: Final = 16
_MOVE_BATCH_SIZE: Final = 4
"""Filters that are moved to the next layout when a filter is removed."""


class Filter(FilterTime):
    """One distinct filter of a topic.

    There may be a million, so per-filter state of other modules is kept here, and not in
    dictionaries. Few of them are in the processor's caches, so the state that a message for the
    only user needs is here as well.

    Args:
        expr: the expression tree.
        text: the normal form, which identifies the filter.
        sampler: see `FilterTime`.

    Attributes:
        user_count: number of subscriptions that share the filter.
        owners: these subscriptions, if the user of the `FilterSet` keeps them here.
        writer: takes the messages of the only user, if they need an id and nothing else; else None.
        sub_id: that id.
        needs_context: whether it calls functions, which may read more than the body.
        has_failed: whether its evaluation has failed; it is not evaluated any more.
        layout: the last layout that the filter was added to.
    """

    __slots__ = (
        "expr",
        "has_failed",
        "layout",
        "needs_context",
        "owners",
        "sub_id",
        "text",
        "user_count",
        "writer",
    )

    def __init__(self, expr: Expr, text: str, sampler: CostSampler) -> None:
        super().__init__(sampler)
        self.writer: Outbox | None = None
        self.sub_id = ""
        self.owners: object = None
        self.expr = expr
        self.text = text
        self.user_count = 0
        self.has_failed = False
        self.layout: object = None
        # a call has parentheses, and most texts have none
        self.needs_context = "(" in text and any(isinstance(node, Call) for node in walk(expr))


FilterCandidate: TypeAlias = Filter | tuple[Filter, Predicate]
"""A filter that matches, or one that may match, with the test of its undecided terms."""

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
        self._filters: dict[str, Filter] = {}
        self._context_filter_count = 0  # filters that read the context
        self._search_counter = LongSearchCounter()
        self._layout = _Layout(message_type, functions, self._search_counter)
        self._next_layout: _Layout | None = None  # replaces `_layout` when it is complete
        self._unmoved_filters: list[Filter] = []  # filters that are not in `_next_layout` yet
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

    def add(self, expr: Expr) -> Filter:
        """Add a user to a filter, and return the filter.

        Args:
            expr: the expression tree of the filter.

        Returns:
            The filter, shared by all users of an equal one.
        """
        text = to_text(expr)
        filter_ = self._filters.get(text)
        if filter_ is None:
            filter_ = Filter(expr, text, self._cost_sampler)
            self._layout.add_filter(filter_)
            if self._next_layout is not None:
                self._next_layout.add_filter(filter_)
            self._filters[text] = filter_
            self._context_filter_count += filter_.needs_context
        filter_.user_count += 1
        return filter_

    def remove(self, filter_: Filter) -> None:
        """Remove a user from a filter, and drop the filter if it has no users left."""
        filter_.user_count -= 1
        if not (filter_.user_count or filter_.has_failed):
            self._drop_filter(filter_)

    def _drop_filter(self, filter_: Filter) -> None:
        del self._filters[filter_.text]
        self._context_filter_count -= filter_.needs_context
        self._layout.remove_filter(filter_)
        if self._next_layout is not None:
            if filter_.layout is self._next_layout:
                self._next_layout.remove_filter(filter_)
            self._move_filters(self._next_layout, _MOVE_BATCH_SIZE)
        elif self._layout.has_unused_fields:
            self._next_layout = _Layout(self._message_type, self._functions, self._search_counter)
            self._unmoved_filters = list(self._filters.values())
            self._needs_maintenance = True
            self._move_filters(self._next_layout, 0)

    def _move_filters(self, layout: _Layout, limit: int) -> None:
        """Move up to `limit` filters to the next layout, and switch to it once it has all."""
        for _ in range(min(limit, len(self._unmoved_filters))):
            filter_ = self._unmoved_filters.pop()
            if self._filters.get(filter_.text) is filter_:
                layout.add_filter(filter_)
        if not self._unmoved_filters:
            self._layout, self._next_layout = layout, None

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
            for filter_, test in scanned:
                self._tested_filter = filter_
                if test(values, context):
                    matched.append(filter_)
            for position, find, find_any in lookups:
                value = values[position]
                try:
                    entry = find(value)
                except TypeError:  # an array, which is not hashable
                    entry = list(find_any(value))
                if isinstance(entry, Filter):  # a single one, the most frequent case
                    matched.append(entry)
                elif entry is not None:
                    self._test_candidates(entry, values, context, matched)
        except Exception as error:  # a failed filter must not affect the others
            if self._tested_filter is None:
                raise
            matched += self._match_after_failure(values, context, self._tested_filter, error)
        if len(matched) > 1:
            return tuple(dict.fromkeys(matched))  # two values may find the same filter
        return (matched[0],) if matched else ()

    def _test_candidates(
        self,
        entry: tuple[Filter, Predicate] | Iterable[FilterCandidate],
        values: tuple[Value, ...],
        context: MessageContext,
        matched: list[Filter],
    ) -> None:
        """Append the filters that match to `matched`, of one candidate or several."""
        for candidate in (entry,) if isinstance(entry, tuple) else entry:
            if isinstance(candidate, Filter):
                matched.append(candidate)
            else:
                self._tested_filter, test = candidate
                if test(values, context):
                    matched.append(self._tested_filter)

    def _maintain(self, body: bytes, context: MessageContext) -> tuple[Filter, ...] | None:
        """Do the periodic work that precedes the matching of a message.

        Returns:
            The filters that match, if the message was a cost sample; else None.
        """
        if self._next_layout is not None:
            self._move_filters(self._next_layout, 1)
        self._needs_maintenance = self._next_layout is not None
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
        for number, (filter_, test) in enumerate(candidates):
            start_s = perf_counter()
            try:
                if test is None or test(values, context):
                    matched.append(filter_)
            except Exception as error:  # a failed filter must not affect the others
                matched += self._match_after_failure(values, context, filter_, error)
                break
            if test is not None and number in timed:
                sample.test_times.append((filter_, sample.elapsed_since(start_s) * timed.step))
        self._cost_sampler.end_sample(sample)
        return tuple(dict.fromkeys(matched))

    def _match_after_failure(
        self,
        values: tuple[Value, ...],
        context: MessageContext,
        failed: Filter,
        problem: Exception,
    ) -> list[Filter]:
        """Evaluate the remaining filters after one has failed. Filters that fail are dropped.

        Args:
            values: the message's fields.
            context: properties of the message other than its fields, for filter functions.
            failed: the filter that has failed.
            problem: its error.

        Returns:
            The filters that match.
        """
        matched: list[Filter] = []
        failure_counter = ConnectionFailureCounter()
        remaining = dropwhile(lambda one: one[0] is not failed, self._layout.candidates(values))
        for filter_, test in remaining:
            error: Exception | None = None
            if filter_ is failed:
                error = problem
            elif failure_counter.is_limit_reached(self._owners_of(filter_)) and count_regexes(
                filter_.expr
            ):
                error = TooCostlyError()
            else:
                try:
                    if test is None or test(values, context):
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


class _Layout:
    """Assigns fields to positions in the tuple of values, and holds the filters that read them.

    Args:
        message_type: parses bodies.
        functions: the functions that filters may call.
        search_counter: counts long searches.

    Attributes:
        plan: the matching plan; None after a change of the filters.
    """

    def __init__(
        self, message_type: MessageType, functions: Functions, search_counter: LongSearchCounter
    ) -> None:
        self.plan: _Plan | None = None
        self._message_type = message_type
        self._functions = functions
        self._search_counter = search_counter
        self._extract: Extractor | None = None  # None after fields have been added
        self._field_positions: dict[Reference, int] = {}  # field: position
        self._use_counts: dict[Reference, int] = {}
        self._indexes: dict[int, FieldIndex[FilterCandidate]] = {}  # by position
        self._scanned: dict[Filter, Predicate] = {}
        # Storing the indexed term of each filter would take more memory than all the rest. It is
        # found again among the filter's terms: by this number, or the first if there is no entry.
        self._term_numbers: dict[Filter, int] = {}
        self._tests: WeakValueDictionary[str, Predicate] = WeakValueDictionary()
        self._readers: dict[int, BulkExtractor] = {}  # of single fields, by position

    @property
    def has_unused_fields(self) -> bool:
        """True if most of the fields are unused."""
        unused = len(self._field_positions) - len(self._use_counts)
        return unused > max(_FEW_FIELDS, len(self._use_counts))

    def candidates(self, values: tuple[Value, ...]) -> list[tuple[Filter, Predicate | None]]:
        """Return the filters that may match these values, with the tests of undecided terms."""
        candidates: list[tuple[Filter, Predicate | None]] = list(self._scanned.items())
        for position, index in self._indexes.items():
            for candidate in index.find(values[position]):
                if isinstance(candidate, Filter):
                    candidates.append((candidate, None))
                else:
                    candidates.append(candidate)
        return candidates

    def make_plan(self) -> _Plan:
        """Compile, cache and return the matching plan."""
        if self._extract is None:
            self._extract = self._message_type.extractor(
                [field.path for field in self._field_positions]
            )
        self.plan = _Plan(
            extract=self._extract,
            scanned=list(self._scanned.items()),
            lookups=[
                (position, index.quick_find, index.find)
                for position, index in self._indexes.items()
            ],
            has_tests=bool(self._tests),
            equality_lookup=self._make_lookup(),
        )
        return self.plan

    def _make_lookup(self) -> EqualityLookup | None:
        """Return a finder by the value of a field, if nothing else has to be tested."""
        if self._scanned or self._tests or len(self._indexes) != 1:
            return None
        ((position, index),) = self._indexes.items()
        read_values = self._readers.get(position)
        if read_values is None:
            path = list(self._field_positions)[position].path
            read_values = self._readers[position] = bulk_extractor(self._message_type, [path])
        return EqualityLookup(read_values, index.quick_find, index.find_all)

    def add_filter(self, filter_: Filter) -> None:
        """Add a filter."""
        self.plan = None
        filter_.layout = self
        for reference in references(filter_.expr):
            if reference not in self._field_positions:
                self._field_positions[reference] = len(self._field_positions)
                self._extract = None
            self._use_counts[reference] = self._use_counts.get(reference, 0) + 1
        terms = indexable_terms(filter_.expr)
        if not terms:
            self._scanned[filter_] = self._compile_test(filter_.expr)
            return
        number = 0
        if len(terms) > 1:
            number = min(range(len(terms)), key=lambda one: self._max_candidates(terms[one]))
        if number:
            self._term_numbers[filter_] = number
        term = terms[number]
        if not term.is_unsatisfiable:
            index = self._indexes.setdefault(self._field_positions[term.field], FieldIndex())
            index.add(term.values, self._index_entry(filter_, term))

    def remove_filter(self, filter_: Filter) -> None:
        """Remove a filter."""
        self.plan = None
        for reference in references(filter_.expr):
            self._use_counts[reference] -= 1
            if not self._use_counts[reference]:
                del self._use_counts[reference]
        if self._scanned.pop(filter_, None) is not None:
            return
        number = self._term_numbers.pop(filter_, 0)
        term = indexable_terms(filter_.expr)[number]
        if not term.is_unsatisfiable:
            position = self._field_positions[term.field]
            self._indexes[position].remove(term.values, self._index_entry(filter_, term))
            if not self._indexes[position]:
                del self._indexes[position]

    def _index_entry(self, filter_: Filter, term: IndexableTerm) -> FilterCandidate:
        """Return the index entry of a filter, equal as long as the filter is placed here."""
        return (
            filter_ if term.other_terms is None else (filter_, self._compile_test(term.other_terms))
        )

    def _max_candidates(self, term: IndexableTerm) -> int:
        """Return the number of filters that share the values that a term demands."""
        position = self._field_positions.get(term.field)
        index = None if position is None else self._indexes.get(position)
        return 0 if index is None else index.max_candidates(term.values)

    def _compile_test(self, expr: Expr) -> Predicate:
        """Compile a test, or return the cached one that other filters share."""
        text = to_text(expr)
        test = self._tests.get(text)
        if test is None:
            budget = SearchBudget(self._search_counter)
            typed_expr = with_inferred_types(expr, self._message_type)
            test = compile_filter(typed_expr, self._functions, self._field_positions, budget)
            self._tests[text] = test
        return test


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


class _Plan(NamedTuple):
    """A matching plan, in the form that is fastest per message.

    Attributes:
        extract: reads the fields of all filters.
        scanned: the filters that every message is tested for.
        lookups: for each indexed field its position, a fast lookup of candidates by value and, for
            arrays, the complete one.
        has_tests: whether there are tests besides index lookups.
        equality_lookup: looks up the values of many messages, if a single field decides all
            filters.
    """

    extract: Extractor
    scanned: list[tuple[Filter, Predicate]]
    lookups: list[
        tuple[int, QuickFind[FilterCandidate], Callable[[Value], Collection[FilterCandidate]]]
    ]
    has_tests: bool
    equality_lookup: EqualityLookup | None


def _ignore_failure(_filter: Filter, _error: Exception) -> None:
    """Do nothing: without filters there is no failure."""


NO_FILTERS: Final = FilterSet(cast("MessageType", None), BUILTINS, _ignore_failure)
"""The filter set of a topic without filters: always false, and never matched against."""
