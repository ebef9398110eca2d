"""Which of many filters a message matches, at a cost that follows the matches and not the filters.

Theory of operation. Subscriptions with the same filter share one `Filter`, which is decided once
per message. All filters of a topic read their fields from one tuple, so that a body is parsed once,
however many filters there are.

Most filters of large systems demand that some field equals a value: `/symbol = 'IBM'`, alone or
ANDed with other terms. One such term of each filter goes into an index: field -> value -> filters.
A message is looked up by its own value of the field, and only the filters found there are tested,
for the terms that the index did not decide. A filter without such a term is tested against every
message. Among several terms that could be indexed, the one is taken whose value has the fewest
filters so far: a value that all filters demand tells nothing.

The index and its terms are in `field_index.py`. What filters may take out of whoever publishes is
limited (`searches.py`); one that wants more has failed. What they cost is known from few messages
(`filter_costs.py`).

Positions in the tuple never change while filters that use them live. When most fields have fallen
out of use, everything is laid out anew: a little with each message, and with each filter that goes,
until the new layout has all filters that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import dropwhile
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from server.expressions import BUILTINS, Functions, references, to_text
from server.expressions.compile_message import Predicate, compile_filter
from server.expressions.context import NO_CONTEXT, MessageContext
from server.expressions.effort import TooCostlyError
from server.expressions.inference import as_read
from server.expressions.patterns import searches
from server.expressions.tree import Call, Expr, Reference, walk
from server.message_types.base import Extractor, MessageType, Value
from server.message_types.bulk import MOST_DECIDED, BulkExtractor, bulk_extractor
from server.sow.record_context import context_of
from server.subscriptions.field_index import FieldIndex, QuickFind, Term, indexable_terms
from server.subscriptions.filter_costs import FilterCost, Looks, Spent
from server.subscriptions.run_matching import RunMatching
from server.subscriptions.searches import Hopeless, Searches, TestEffort
from server.subscriptions.value_matching import ValueMatching

if TYPE_CHECKING:
    from server.sow.records import Record
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.outbox import Outbox

_FEW_FIELDS: Final = 16
_MOVED_AT_ONCE: Final = 4
"""Filters that the next layout is given while one goes."""


class Filter(Spent):
    """One distinct filter of a topic.

    There may be a million, so what others know of it is kept here, and not in dictionaries. Few are
    in the processor's caches, so what a message for its only user takes is here as well.

    Args:
        expr: its tree.
        text: its normal form, which tells filters apart.
        looks: see `Spent`.

    Attributes:
        expr: see above.
        text: see above.
        users: how many subscriptions share it.
        owners: which these are, where those who use the filter keep that here.
        writer: takes the messages of its only user, if all that these need is an id; else None.
        sub_id: the id.
        asks_for_context: whether it calls functions, which may ask about more than the body.
        has_failed: whether deciding it has failed, so that it is decided no more.
        layout: the last layout that has got it.
    """

    __slots__ = (
        "asks_for_context",
        "expr",
        "has_failed",
        "layout",
        "owners",
        "sub_id",
        "text",
        "users",
        "writer",
    )

    def __init__(self, expr: Expr, text: str, looks: Looks) -> None:
        super().__init__(looks)
        self.writer: Outbox | None = None
        self.sub_id = ""
        self.owners: object = None
        self.expr = expr
        self.text = text
        self.users = 0
        self.has_failed = False
        self.layout: object = None
        # a call has parentheses, and most texts have none
        self.asks_for_context = "(" in text and any(isinstance(node, Call) for node in walk(expr))


Candidate: TypeAlias = Filter | tuple[Filter, Predicate]
"""A filter that matches, or that may, with the test of the terms that are not decided yet."""

OnFailure: TypeAlias = Callable[[Filter, Exception], None]
"""Told of a filter that failed instead of matching or not, and why."""

Owners: TypeAlias = Callable[[Filter], Collection[int]]
"""Tells whose a filter is, by the numbers of their connections."""


def _nobody_known(_filter: Filter) -> Collection[int]:
    return ()


class FilterSet:
    """The distinct filters on one topic.

    Args:
        message_type: how bodies are read.
        functions: what the filters may call.
        on_failure: told of a filter that has failed.
        owners: tells whose a filter is, by the numbers of their connections.
    """

    def __init__(
        self,
        message_type: MessageType,
        functions: Functions,
        on_failure: OnFailure,
        owners: Owners = _nobody_known,
    ) -> None:
        self._message_type = message_type
        self._functions = functions
        self._on_failure = on_failure
        self._owners = owners
        self._filters: dict[str, Filter] = {}
        self._asking = 0  # filters that ask for context
        self._searches = Searches()
        self._layout = _Layout(message_type, functions, self._searches)
        self._next: _Layout | None = None  # takes the place of that when it is complete
        self._unmoved: list[Filter] = []  # filters that it has not got yet
        self._looks = Looks()
        self._is_diverted = False  # whether the next message is not merely matched
        self._testing: Filter | None = None  # that is to blame if something fails
        self._runs = RunMatching[Filter](message_type)

    def __bool__(self) -> bool:
        return bool(self._filters)

    @property
    def asks_for_context(self) -> bool:
        """Whether some filter asks about more than the body."""
        return self._asking > 0

    def add(self, expr: Expr) -> Filter:
        """Add a user of a filter.

        Args:
            expr: the filter's tree.

        Returns:
            The filter, shared with all users of an equal one.
        """
        text = to_text(expr)
        filter_ = self._filters.get(text)
        if filter_ is None:
            filter_ = Filter(expr, text, self._looks)
            self._layout.place(filter_)
            if self._next is not None:
                self._next.place(filter_)
            self._filters[text] = filter_
            self._asking += filter_.asks_for_context
        filter_.users += 1
        return filter_

    def remove(self, filter_: Filter) -> None:
        """Take a user of a filter away; without users it is decided no more."""
        filter_.users -= 1
        if not (filter_.users or filter_.has_failed):
            self._drop(filter_)

    def _drop(self, filter_: Filter) -> None:
        del self._filters[filter_.text]
        self._asking -= filter_.asks_for_context
        self._layout.displace(filter_)
        if self._next is not None:
            if filter_.layout is self._next:
                self._next.displace(filter_)
            self._move_some(self._next, _MOVED_AT_ONCE)
        elif self._layout.is_wasteful:
            self._next = _Layout(self._message_type, self._functions, self._searches)
            self._unmoved = list(self._filters.values())
            self._is_diverted = True
            self._move_some(self._next, 0)

    def _move_some(self, layout: _Layout, most: int) -> None:
        """Give some filters to the next layout, and use that if it has all of them."""
        for _ in range(min(most, len(self._unmoved))):
            filter_ = self._unmoved.pop()
            if self._filters.get(filter_.text) is filter_:
                layout.place(filter_)
        if not self._unmoved:
            self._layout, self._next = layout, None

    def expect(self, messages: int) -> None:
        """Take note of messages that are about to be matched: some of them are looked at."""
        looks = self._looks
        looks.messages += messages
        if looks.messages >= looks.due_at:
            self._is_diverted = True

    def in_runs(self, messages: int) -> RunMatching[Filter] | None:
        """What decides the filters for some messages together; None if they are to be matched.

        Args:
            messages: how many, of those that are expected.
        """
        if self._is_diverted or len(self._filters) > MOST_DECIDED:
            return None
        plan = self._layout.plan or self._layout.make_plan()
        runs = self._runs
        return runs if runs.is_ready(plan, self._filters.values(), messages) else None

    def by_value(self) -> ValueMatching | None:
        """What finds the filters of messages by the value of a field, if that decides all."""
        if self._is_diverted:
            return None
        plan = self._layout.plan or self._layout.make_plan()
        return plan.by_value

    def are_found_by(self, finder: ValueMatching) -> bool:
        """Whether what `by_value` has given still decides these filters, and no others."""
        plan = self._layout.plan
        return plan is not None and plan.by_value is finder and not self._is_diverted

    def are_in(self, runs: RunMatching[Filter]) -> bool:
        """Whether what `in_runs` has given still decides these filters, and no others."""
        return self._layout.plan is runs.state and not self._is_diverted

    @property
    def is_diverted(self) -> bool:
        """Whether more is to be done with the next message than to match it."""
        return self._is_diverted

    def cost(self, filter_: Filter, topic: str) -> FilterCost:
        """What a filter costs.

        Args:
            filter_: one of these.
            topic: the topic that they are on.
        """
        return filter_.cost(self._looks, topic, filter_.text, filter_.users, len(self._filters))

    def match(self, body: bytes, context: MessageContext = NO_CONTEXT) -> tuple[Filter, ...]:
        """Find the filters that a message matches.

        Args:
            body: the message's body.
            context: what filters may ask about the message besides its fields.
        """
        if self._is_diverted and (seen := self._divert(body, context)) is not None:
            return seen
        extract, scanned, lookups, has_tests, _ = self._layout.plan or self._layout.make_plan()
        if has_tests:
            self._searches.messages += 1
        values = extract(body)
        matched: list[Filter] = []
        self._testing = None
        try:
            for filter_, test in scanned:
                self._testing = filter_
                if test(values, context):
                    matched.append(filter_)
            for position, find, find_any in lookups:
                value = values[position]
                try:
                    found = find(value)
                except TypeError:  # an array, which no dictionary finds
                    found = list(find_any(value))
                if isinstance(found, Filter):  # the only one, as it is most of the time
                    matched.append(found)
                elif found is not None:
                    self._decide(found, values, context, matched)
        except Exception as error:  # the others are decided all the same
            if self._testing is None:
                raise
            matched += self._match_with_care(values, context, self._testing, error)
        if len(matched) > 1:
            return tuple(dict.fromkeys(matched))  # a filter may be found by two of its values
        return (matched[0],) if matched else ()

    def _decide(
        self,
        found: tuple[Filter, Predicate] | Iterable[Candidate],
        values: tuple[Value, ...],
        context: MessageContext,
        matched: list[Filter],
    ) -> None:
        """Add those of one candidate, or of several, that match."""
        for candidate in (found,) if isinstance(found, tuple) else found:
            if isinstance(candidate, Filter):
                matched.append(candidate)
            else:
                self._testing, test = candidate
                if test(values, context):
                    matched.append(self._testing)

    def _divert(self, body: bytes, context: MessageContext) -> tuple[Filter, ...] | None:
        """Do what is to be done now and then before a message is matched.

        Returns:
            What it matches, if that has been found out meanwhile.
        """
        if self._next is not None:
            self._move_some(self._next, 1)
        self._is_diverted = self._next is not None
        looks = self._looks
        return self._look(body, context) if looks.messages >= looks.due_at else None

    def _look(self, body: bytes, context: MessageContext) -> tuple[Filter, ...]:
        """Find the filters that a message matches, and see what that takes. See `match`."""
        extract, _, _, has_tests, _ = self._layout.plan or self._layout.make_plan()
        if has_tests:
            self._searches.messages += 1
        look = self._looks.begin()
        begun = perf_counter()
        values = extract(body)
        look.reading_seconds = look.took(begun)
        candidates = self._layout.candidates(values)
        timed = look.timed(len(candidates))
        matched: list[Filter] = []
        for number, (filter_, decide) in enumerate(candidates):
            begun = perf_counter()
            try:
                if decide is None or decide(values, context):
                    matched.append(filter_)
            except Exception as error:  # the others are decided all the same
                matched += self._match_with_care(values, context, filter_, error)
                break
            if decide is not None and number in timed:
                look.seen.append((filter_, look.took(begun) * timed.step))
        self._looks.end(look)
        return tuple(dict.fromkeys(matched))

    def _match_with_care(
        self,
        values: tuple[Value, ...],
        context: MessageContext,
        failed: Filter,
        problem: Exception,
    ) -> list[Filter]:
        """Decide the filters that are left after one that has failed. Those that fail are dropped.

        Args:
            values: the message's fields.
            context: what filters may ask about the message besides.
            failed: the filter that has failed.
            problem: why it has.

        Returns:
            Those that match.
        """
        matched: list[Filter] = []
        hopeless = Hopeless()
        left = dropwhile(lambda one: one[0] is not failed, self._layout.candidates(values))
        for filter_, decide in left:
            error: Exception | None = None
            if filter_ is failed:
                error = problem
            elif hopeless.are(self._owners(filter_)) and searches(filter_.expr):
                error = TooCostlyError()
            else:
                try:
                    if decide is None or decide(values, context):
                        matched.append(filter_)
                except Exception as another:  # whatever it is, the publisher must not pay for it
                    error = another
            if error is not None and not filter_.has_failed:
                if isinstance(error, TooCostlyError):
                    hopeless.add(self._owners(filter_))
                filter_.has_failed = True
                self._drop(filter_)
                self._on_failure(filter_, error)
        return matched


class _Layout:
    """Where fields are in the tuple of values, and the filters that read them there.

    Args:
        message_type: how bodies are read.
        functions: what the filters may call.
        searches: counts long searches.

    Attributes:
        plan: how a message is matched; None when filters have changed.
    """

    def __init__(self, message_type: MessageType, functions: Functions, searches: Searches) -> None:
        self.plan: _Plan | None = None
        self._message_type = message_type
        self._functions = functions
        self._searches = searches
        self._extract: Extractor | None = None  # None when fields have been added
        self._fields: dict[Reference, int] = {}  # with their positions
        self._uses: dict[Reference, int] = {}
        self._indexes: dict[int, FieldIndex[Candidate]] = {}  # by position
        self._scanned: dict[Filter, Predicate] = {}
        # The term by which a filter is found would take more memory than all else: it is found
        # again among the filter's, the first if nothing is said here.
        self._later_terms: dict[Filter, int] = {}
        self._tests: WeakValueDictionary[str, Predicate] = WeakValueDictionary()
        self._readers: dict[int, BulkExtractor] = {}  # of single fields, by position

    @property
    def is_wasteful(self) -> bool:
        """Whether most of its fields have fallen out of use."""
        unused = len(self._fields) - len(self._uses)
        return unused > max(_FEW_FIELDS, len(self._uses))

    def candidates(self, values: tuple[Value, ...]) -> list[tuple[Filter, Predicate | None]]:
        """The filters that a message may match, by its values, with what is not decided yet."""
        found: list[tuple[Filter, Predicate | None]] = list(self._scanned.items())
        for position, index in self._indexes.items():
            for candidate in index.find(values[position]):
                if isinstance(candidate, Filter):
                    found.append((candidate, None))
                else:
                    found.append(candidate)
        return found

    def make_plan(self) -> _Plan:
        """How a message is matched, from now on."""
        if self._extract is None:
            self._extract = self._message_type.extractor([field.path for field in self._fields])
        self.plan = _Plan(
            extract=self._extract,
            scanned=list(self._scanned.items()),
            lookups=[
                (position, index.quick_find, index.find)
                for position, index in self._indexes.items()
            ],
            has_tests=bool(self._tests),
            by_value=self._by_value(),
        )
        return self.plan

    def _by_value(self) -> ValueMatching | None:
        """What finds filters by the value of a field, if there is nothing else to be decided."""
        if self._scanned or self._tests or len(self._indexes) != 1:
            return None
        ((position, index),) = self._indexes.items()
        read = self._readers.get(position)
        if read is None:
            path = list(self._fields)[position].path
            read = self._readers[position] = bulk_extractor(self._message_type, [path])
        return ValueMatching(read, index.quick_find, index.find_all)

    def place(self, filter_: Filter) -> None:
        """Add a filter."""
        self.plan = None
        filter_.layout = self
        for reference in references(filter_.expr):
            if reference not in self._fields:
                self._fields[reference] = len(self._fields)
                self._extract = None
            self._uses[reference] = self._uses.get(reference, 0) + 1
        terms = indexable_terms(filter_.expr)
        if not terms:
            self._scanned[filter_] = self._test(filter_.expr)
            return
        number = 0
        if len(terms) > 1:
            number = min(range(len(terms)), key=lambda one: self._crowd(terms[one]))
        if number:
            self._later_terms[filter_] = number
        term = terms[number]
        if not term.is_void:
            index = self._indexes.setdefault(self._fields[term.field], FieldIndex())
            index.add(term.values, self._candidate(filter_, term))

    def displace(self, filter_: Filter) -> None:
        """Take a filter away."""
        self.plan = None
        for reference in references(filter_.expr):
            self._uses[reference] -= 1
            if not self._uses[reference]:
                del self._uses[reference]
        if self._scanned.pop(filter_, None) is not None:
            return
        number = self._later_terms.pop(filter_, 0)
        term = indexable_terms(filter_.expr)[number]
        if not term.is_void:
            position = self._fields[term.field]
            self._indexes[position].remove(term.values, self._candidate(filter_, term))
            if not self._indexes[position]:
                del self._indexes[position]

    def _candidate(self, filter_: Filter, term: Term) -> Candidate:
        """A filter, as it is found by a term; the same as long as it is here."""
        return filter_ if term.rest is None else (filter_, self._test(term.rest))

    def _crowd(self, term: Term) -> int:
        """How many filters share the values that a term demands."""
        position = self._fields.get(term.field)
        index = None if position is None else self._indexes.get(position)
        return 0 if index is None else index.crowd(term.values)

    def _test(self, expr: Expr) -> Predicate:
        """Compile a test, once for all filters that have it in common."""
        text = to_text(expr)
        test = self._tests.get(text)
        if test is None:
            effort = TestEffort(self._searches)
            read = as_read(expr, self._message_type)
            test = compile_filter(read, self._functions, self._fields, effort)
            self._tests[text] = test
        return test


def match_record(
    filters: FilterSet, record: Record, envelope: Envelope | None
) -> tuple[Filter, ...]:
    """Find the filters that a state of a record matches; only a new state has an envelope."""
    context: MessageContext = NO_CONTEXT
    if filters.asks_for_context:
        context = context_of(record)
        if envelope is not None:
            envelope.describe_publisher(context)
    filters.expect(1)
    return filters.match(record.body, context)


class _Plan(NamedTuple):
    """How a message is matched, in the form that takes the least time per message.

    Attributes:
        extract: reads the fields of all filters.
        scanned: the filters to test every message for.
        lookups: for each indexed field its position, a quick way to find candidates by its value
            and, for arrays, the thorough one.
        has_tests: whether there is more to do than to look values up.
        by_value: looks values up for many messages, if there is a single field to look at and
            nothing else to do.
    """

    extract: Extractor
    scanned: list[tuple[Filter, Predicate]]
    lookups: list[tuple[int, QuickFind[Candidate], Callable[[Value], Collection[Candidate]]]]
    has_tests: bool
    by_value: ValueMatching | None


def _nobody_is_told(_filter: Filter, _error: Exception) -> None:
    """There is no filter that could fail."""


NO_FILTERS: Final = FilterSet(cast("MessageType", None), BUILTINS, _nobody_is_told)
"""The filters of a topic that has none: always false, and nothing is matched against it."""
