"""The filters of a topic in the form in which messages are matched against them.

See `filter_set.py` for the theory of operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from server.expressions import Functions, references
from server.expressions.backends.compile_message import FormPredicate, compile_form
from server.expressions.filter_form import (
    ContentFilter,
    FilterForm,
    expr_of,
    form_of,
    text_of,
)
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import MessageContext
from server.expressions.tree import Call, Expr, Reference, walk
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.bulk import BulkExtractor, bulk_extractor
from server.topics.subscriptions.matching.equality_lookup import EqualityLookup
from server.topics.subscriptions.matching.field_index import (
    FieldIndex,
    IndexableTerm,
    QuickFind,
    indexable_terms,
)
from server.topics.subscriptions.matching.filter_costs import CostSampler, FilterTime
from server.topics.subscriptions.matching.regex_budget import LongSearchCounter, SearchBudget

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.subscription import Subscription

_FEW_FIELDS: Final = 16
_MAX_SHARED_FIELDS: Final = 64
"""Fields of which every message is read for its candidates."""
_MAX_EXTRACTORS: Final = 1024
"""Cached extractors of forms with other fields."""


class SharedForm:
    """What the filters of one form share in a set.

    Args:
        form: the form.

    Attributes:
        form: the same.
        fields: the fields that it reads.
        terms: the terms that can be indexed; none if all messages have to be tested.
        tests: for each of the terms, the test of the others; of all of the form, if it has none.
            None where nothing has to be tested, or no filter is found by that term.
        needs_context: whether it calls functions, which may read more than the body.
        filter_count: number of its filters.
        positions: the positions of its fields in the values.
        generation: the layout's generation that `positions` is of.
        reads_fields: whether it reads its fields itself, since some have no positions.
    """

    def __init__(self, form: FilterForm) -> None:
        self.form = form
        self.fields = references(form.template)
        self.terms = indexable_terms(form.template)
        self.tests: list[FormPredicate | None] = [None] * max(len(self.terms), 1)
        self.needs_context = any(isinstance(node, Call) for node in walk(form.template))
        self.filter_count = 0
        self.positions: tuple[int, ...] = ()
        self.generation = -1
        self.reads_fields = False


class Filter(FilterTime):
    """One distinct filter of a topic.

    There may be a million, so per-filter state of other modules is kept here, and not in
    dictionaries. Few of them are in the processor's caches, so the state that a message for the
    only user needs is here as well.

    Args:
        content_filter: identifies the filter.
        form: its form in the set.
        sampler: see `FilterTime`.

    Attributes:
        content_filter: the same.
        form: the same.
        term_number: the number of the indexed term.
        test: decides the terms that are not indexed; None if the index decides all.
        user_count: number of subscriptions that share the filter.
        owners: these subscriptions, if the user of the `FilterSet` keeps them here: the only one,
            or all with their numbers in the order of creation.
        number: that of the only one.
        writer: takes the messages of the only user, if they need an id and nothing else; else None.
        sub_id: that id.
        has_failed: whether its evaluation has failed; it is not evaluated any more.
    """

    def __init__(
        self, content_filter: ContentFilter, form: SharedForm, sampler: CostSampler
    ) -> None:
        super().__init__(sampler)
        self.writer: Outbox | None = None
        self.sub_id = ""
        self.owners: Subscription | dict[Subscription, int] | None = None
        self.number = 0
        self.content_filter = content_filter
        self.form = form
        self.term_number = 0
        self.test: FormPredicate | None = None
        self.user_count = 0
        self.has_failed = False

    @property
    def expr(self) -> Expr:
        """The filter's tree, built anew."""
        return expr_of(self.content_filter)

    @property
    def text(self) -> str:
        """The filter's canonical text."""
        return text_of(self.content_filter)


class MatchingPlan(NamedTuple):
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
    scanned: list[Filter]
    lookups: list[tuple[int, QuickFind[Filter], Callable[[Value], Collection[Filter]]]]
    has_tests: bool
    equality_lookup: EqualityLookup | None


class FilterLayout:
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
        self.plan: MatchingPlan | None = None
        self._message_type = message_type
        self._functions = functions
        self._search_counter = search_counter
        self._extract: Extractor | None = None  # None after fields have been added
        self._forms: dict[FilterForm, SharedForm] = {}
        self._generation = 0  # increases when positions change
        self._field_positions: dict[Reference, int] = {}
        self._use_counts: dict[Reference, int] = {}  # number of forms that read a field
        self._scan_counts: dict[Reference, int] = {}  # number of forms without index
        self._unused_count = 0  # fields with a position that no form reads
        self._indexes: dict[Reference, FieldIndex[Filter]] = {}
        self._scanned: dict[Filter, None] = {}
        self._tested_count = 0  # filters with a test
        self._readers: dict[Reference, BulkExtractor] = {}  # of single fields
        self._extractors: dict[FilterForm, Extractor] = {}  # of forms that read their fields

    def candidates(self, values: tuple[Value, ...]) -> list[Filter]:
        """Return the filters that may match these values."""
        candidates = list(self._scanned)
        for field, index in self._indexes.items():
            candidates += index.find(values[self._field_positions[field]])
        return candidates

    def is_match(
        self, filter_: Filter, values: tuple[Value, ...], body: bytes, context: MessageContext
    ) -> bool:
        """Return whether a message matches a filter that is scanned or has been found by index.

        Args:
            filter_: the filter.
            values: the message's fields.
            body: its body.
            context: properties of the message other than its fields, for filter functions.
        """
        test = filter_.test
        if test is None:
            return True
        form = filter_.form
        if form.generation != self._generation:
            self._place_form(form)
        if form.reads_fields:
            values = self._extractor_of(form)(body)
        return test(values, context, filter_.content_filter, form.positions)

    def make_plan(self) -> MatchingPlan:
        """Compile, cache and return the matching plan."""
        if self._unused_count > max(_FEW_FIELDS, len(self._field_positions) // 2):
            self._assign_positions()
        if self._extract is None:
            self._extract = self._message_type.extractor(
                [field.path for field in self._field_positions]
            )
        self.plan = MatchingPlan(
            extract=self._extract,
            scanned=list(self._scanned),
            lookups=[
                (self._field_positions[field], index.quick_find, index.find)
                for field, index in self._indexes.items()
            ],
            has_tests=self._tested_count > 0,
            equality_lookup=self._make_lookup(),
        )
        return self.plan

    def _make_lookup(self) -> EqualityLookup | None:
        """Return a finder by the value of a field, if nothing else has to be tested."""
        if self._tested_count or len(self._indexes) != 1:
            return None
        ((field, index),) = self._indexes.items()
        read_values = self._readers.get(field)
        if read_values is None:
            read_values = self._readers[field] = bulk_extractor(self._message_type, [field.path])
        return EqualityLookup(read_values, index.quick_find, index.find_all)

    def form_of(self, content_filter: ContentFilter) -> SharedForm:
        """Return the form of a filter that is about to be added."""
        form = self._forms.get(form_of(content_filter))
        return SharedForm(form_of(content_filter)) if form is None else form

    def add_filter(self, filter_: Filter) -> None:
        """Add a filter."""
        self.plan = None
        form, content_filter = filter_.form, filter_.content_filter
        if form.filter_count == 0:
            self._add_form(form)
        form.filter_count += 1
        terms = form.terms
        if not terms:
            self._scanned[filter_] = None
            filter_.test = self._test_of(form, 0)
            self._tested_count += 1
            return
        if len(terms) > 1:
            filter_.term_number = min(
                range(len(terms)),
                key=lambda one: self._max_candidates(terms[one], content_filter),
            )
        term = terms[filter_.term_number]
        filter_.test = self._test_of(form, filter_.term_number)
        self._tested_count += filter_.test is not None
        demand = term.demand_of(content_filter)
        if not demand.is_unsatisfiable:
            index = self._indexes.get(term.field)
            if index is None:
                index = self._indexes[term.field] = FieldIndex()
                self._add_position(term.field)
            index.add(demand, filter_)

    def remove_filter(self, filter_: Filter) -> None:
        """Remove a filter."""
        self.plan = None
        form = filter_.form
        self._tested_count -= filter_.test is not None
        if form.terms:
            self._remove_from_index(filter_, form.terms[filter_.term_number])
        else:
            del self._scanned[filter_]
        form.filter_count -= 1
        if form.filter_count == 0:
            self._remove_form(form)

    def _remove_from_index(self, filter_: Filter, term: IndexableTerm) -> None:
        demand = term.demand_of(filter_.content_filter)
        if demand.is_unsatisfiable:
            return
        index = self._indexes[term.field]
        index.remove(demand, filter_)
        if not index:
            del self._indexes[term.field]
            self._readers.pop(term.field, None)

    def _add_form(self, form: SharedForm) -> None:
        """Add a form, for its first filter."""
        self._forms[form.form] = form
        for field in form.fields:
            count = self._use_counts.get(field, 0)
            self._use_counts[field] = count + 1
            if not count and field in self._field_positions:
                self._unused_count -= 1
            if not form.terms:
                self._scan_counts[field] = self._scan_counts.get(field, 0) + 1
            if not form.terms or len(self._field_positions) < _MAX_SHARED_FIELDS:
                self._add_position(field)

    def _remove_form(self, form: SharedForm) -> None:
        """Remove a form without filters."""
        del self._forms[form.form]
        self._extractors.pop(form.form, None)
        for field in form.fields:
            _decrement(self._use_counts, field)
            if not form.terms:
                _decrement(self._scan_counts, field)
            if field not in self._use_counts and field in self._field_positions:
                self._unused_count += 1
        if not self._forms:  # release the memory at once: there may be no message any more
            self._assign_positions()

    def _add_position(self, field: Reference) -> None:
        """Assign a position to a field, if it has none."""
        if field not in self._field_positions:
            self._field_positions[field] = len(self._field_positions)
            self._extract = None

    def _assign_positions(self) -> None:
        """Assign new positions to the fields in use."""
        self._generation += 1
        self._unused_count = 0
        self._extract = None
        fields = dict.fromkeys((*self._indexes, *self._scan_counts))
        for field in self._use_counts:
            if len(fields) >= _MAX_SHARED_FIELDS:
                break
            fields[field] = None
        self._field_positions = {field: position for position, field in enumerate(fields)}

    def _place_form(self, form: SharedForm) -> None:
        """Look up the positions of a form's fields."""
        form.generation = self._generation
        positions = [self._field_positions.get(field, -1) for field in form.fields]
        form.reads_fields = -1 in positions
        form.positions = tuple(range(len(positions)) if form.reads_fields else positions)

    def _extractor_of(self, form: SharedForm) -> Extractor:
        """Return the extractor of a form that reads its fields itself."""
        extract = self._extractors.get(form.form)
        if extract is None:
            if len(self._extractors) >= _MAX_EXTRACTORS:
                self._extractors.clear()
            extract = self._message_type.extractor([field.path for field in form.fields])
            self._extractors[form.form] = extract
        return extract

    def _max_candidates(self, term: IndexableTerm, content_filter: ContentFilter) -> int:
        """Return the number of filters that share the values that a term demands."""
        index = self._indexes.get(term.field)
        return 0 if index is None else index.max_candidates(term.demand_of(content_filter))

    def _test_of(self, form: SharedForm, term_number: int) -> FormPredicate | None:
        """Return the test of a form of which a term is found by index, or of all of it."""
        test = form.tests[term_number]
        if test is None:
            terms, template = form.terms, form.form.template
            remaining = terms[term_number].other_terms(template) if terms else template
            if remaining is not None:
                test = form.tests[term_number] = self._compile_test(form, remaining)
        return test

    def _compile_test(self, form: SharedForm, template: Expr) -> FormPredicate:
        budget = SearchBudget(self._search_counter)
        typed_template = with_inferred_types(template, self._message_type)
        return compile_form(typed_template, self._functions, form.fields, budget)


def _decrement(counts: dict[Reference, int], field: Reference) -> None:
    counts[field] -= 1
    if not counts[field]:
        del counts[field]
