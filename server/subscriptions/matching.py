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

What a value is looked up under follows the rules by which `=` compares texts and numbers, which
`server.expressions.semantics.Membership` puts into sets: a text finds equal texts and, if it is a
numeral, equal numbers; a number finds equal numbers and texts that are equal numerals. Literals so
large that integers and doubles lose their exact relation stay out of the index.

Regular expressions that search for long hold up whoever publishes. So there is an allowance for all
filters that a message is tested for, and one for each test over many messages, which grows with
them. A filter that wants more has failed (`_Searches`).

Positions in the tuple never change while filters that use them live. When most fields have fallen
out of use, everything is laid out anew: a little with each message, and with each filter that goes,
until the new layout has all filters that there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from server.expressions import BUILTINS, Functions, conjuncts, references, to_text
from server.expressions.compile_message import Predicate, compile_filter
from server.expressions.context import NO_CONTEXT, MessageContext
from server.expressions.effort import LONG_SEARCHES, TooCostlyError
from server.expressions.numerals import numeral
from server.expressions.semantics import Membership
from server.expressions.tree import (
    And,
    Call,
    Comparison,
    Expr,
    Identifier,
    In,
    Literal,
    Reference,
    walk,
)
from server.message_types.base import Extractor, MessageType, Value
from server.sow.record_context import context_of

if TYPE_CHECKING:
    from server.sow.records import Record
    from server.subscriptions.envelope import Envelope

_FEW_FIELDS: Final = 16
_MOVED_AT_ONCE: Final = 4
"""Filters that the next layout is given while one goes."""
_MESSAGES_PER_LONG_SEARCH: Final = 100
"""After so many messages a test may do another one, beyond those that it may do at any time."""

_Key = TypeVar("_Key")


class Filter:
    """One distinct filter of a topic.

    Attributes:
        expr: its tree.
        text: its normal form, which tells filters apart.
        users: how many subscriptions share it.
        asks_for_context: whether it calls functions, which may ask about more than the body.
        has_failed: whether deciding it has failed, so that it is decided no more.
    """

    __slots__ = ("asks_for_context", "expr", "has_failed", "text", "users")

    def __init__(self, expr: Expr, text: str) -> None:
        self.expr = expr
        self.text = text
        self.users = 0
        self.has_failed = False
        self.asks_for_context = any(isinstance(node, Call) for node in walk(expr))


QuickFind: TypeAlias = Callable[[Any, "_Candidates"], Iterable["Candidate"]]

Candidate: TypeAlias = tuple[Filter, Predicate | None]
"""A filter that may match, and the test of the terms that are not decided yet; None if all are."""

_Candidates: TypeAlias = dict[Candidate, None]
"""An ordered set, from which any is taken away at once."""

OnFailure: TypeAlias = Callable[[Filter, Exception], None]
"""Told of a filter that failed instead of matching or not, and why."""


class FilterSet:
    """The distinct filters on one topic.

    Args:
        message_type: how bodies are read.
        functions: what the filters may call.
        on_failure: told of a filter that has failed.
    """

    def __init__(
        self, message_type: MessageType, functions: Functions, on_failure: OnFailure
    ) -> None:
        self._message_type = message_type
        self._functions = functions
        self._on_failure = on_failure
        self._filters: dict[str, Filter] = {}
        self._asking = 0  # filters that ask for context
        self._searches = _Searches()
        self._layout = _Layout(message_type, functions, self._searches)
        self._next: _Layout | None = None  # takes the place of that when it is complete
        self._unmoved: list[Filter] = []  # filters that it has not got yet

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
            filter_ = Filter(expr, text)
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
            if self._next.has(filter_):
                self._next.displace(filter_)
            self._move_some(self._next, _MOVED_AT_ONCE)
        elif self._layout.is_wasteful:
            self._next = _Layout(self._message_type, self._functions, self._searches)
            self._unmoved = list(self._filters.values())
            self._move_some(self._next, 0)

    def _move_some(self, layout: _Layout, most: int) -> None:
        """Give some filters to the next layout, and use that if it has all of them."""
        for _ in range(min(most, len(self._unmoved))):
            filter_ = self._unmoved.pop()
            if self._filters.get(filter_.text) is filter_:
                layout.place(filter_)
        if not self._unmoved:
            self._layout, self._next = layout, None

    def match(self, body: bytes, context: MessageContext = NO_CONTEXT) -> tuple[Filter, ...]:
        """Find the filters that a message matches.

        Args:
            body: the message's body.
            context: what filters may ask about the message besides its fields.
        """
        if self._next is not None:
            self._move_some(self._next, 1)
        extract, scanned, lookups = self._layout.plan or self._layout.make_plan()
        self._searches.messages += 1
        values = extract(body)
        matched: list[Filter] = []
        try:
            for filter_, test in scanned:
                if test(values, context):
                    matched.append(filter_)
            for position, find, find_any in lookups:
                value = values[position]
                try:
                    candidates = find(value, _NOBODY)
                except TypeError:  # an array, which no dictionary finds
                    candidates = find_any(value)
                for filter_, decide in candidates:
                    if decide is None or decide(values, context):
                        matched.append(filter_)
        except Exception:  # one of them fails: it is found out which
            matched = self._match_with_care(values, context)
        if len(matched) > 1:
            return tuple(dict.fromkeys(matched))  # a filter may be found by two of its values
        return (matched[0],) if matched else ()

    def _match_with_care(self, values: tuple[Value, ...], context: MessageContext) -> list[Filter]:
        """The filters that match; those that fail are dropped, and told of."""
        matched: list[Filter] = []
        candidates = self._layout.candidates(values)
        self._searches.begin_anew()
        for filter_, decide in candidates:
            self._searches.left = LONG_SEARCHES
            try:
                if decide is None or decide(values, context):
                    matched.append(filter_)
            except Exception as error:  # whatever it is, whoever published must not pay for it
                if not filter_.has_failed:
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

    def __init__(
        self, message_type: MessageType, functions: Functions, searches: _Searches
    ) -> None:
        self.plan: _Plan | None = None
        self._message_type = message_type
        self._functions = functions
        self._searches = searches
        self._extract: Extractor | None = None  # None when fields have been added
        self._fields: dict[Reference, int] = {}  # with their positions
        self._uses: Counter[Reference] = Counter()
        self._indexes: dict[int, _FieldIndex] = {}  # by position
        self._scanned: dict[str, tuple[Filter, Predicate]] = {}
        self._indexed: dict[str, tuple[_Term, Candidate | None]] = {}  # None if the term is void
        self._tests: WeakValueDictionary[str, Predicate] = WeakValueDictionary()

    @property
    def is_wasteful(self) -> bool:
        """Whether most of its fields have fallen out of use."""
        unused = len(self._fields) - len(self._uses)
        return unused > max(_FEW_FIELDS, len(self._uses))

    def has(self, filter_: Filter) -> bool:
        """Whether a filter is here."""
        return filter_.text in self._scanned or filter_.text in self._indexed

    def candidates(self, values: tuple[Value, ...]) -> list[Candidate]:
        """The filters that a message may match, by its values."""
        found: list[Candidate] = list(self._scanned.values())
        for position, index in self._indexes.items():
            found += index.find(values[position])
        return found

    def make_plan(self) -> _Plan:
        """How a message is matched, from now on."""
        if self._extract is None:
            self._extract = self._message_type.extractor([field.path for field in self._fields])
        self.plan = _Plan(
            extract=self._extract,
            scanned=list(self._scanned.values()),
            lookups=[
                (position, index.quick_find, index.find)
                for position, index in self._indexes.items()
            ],
        )
        return self.plan

    def place(self, filter_: Filter) -> None:
        """Add a filter."""
        self.plan = None
        for reference in references(filter_.expr):
            if reference not in self._fields:
                self._fields[reference] = len(self._fields)
                self._extract = None
            self._uses[reference] += 1
        term = min(_indexable_terms(filter_.expr), key=self._crowd, default=None)
        if term is None:
            self._scanned[filter_.text] = filter_, self._test(filter_.expr)
            return
        if term.is_void:
            self._indexed[filter_.text] = term, None
            return
        candidate = filter_, None if term.rest is None else self._test(term.rest)
        self._indexed[filter_.text] = term, candidate
        self._indexes.setdefault(self._fields[term.field], _FieldIndex()).add(
            term.values, candidate
        )

    def displace(self, filter_: Filter) -> None:
        """Take a filter away."""
        self.plan = None
        for reference in references(filter_.expr):
            self._uses[reference] -= 1
            if not self._uses[reference]:
                del self._uses[reference]
        if filter_.text in self._scanned:
            del self._scanned[filter_.text]
            return
        term, candidate = self._indexed.pop(filter_.text)
        if candidate is None:
            return
        position = self._fields[term.field]
        self._indexes[position].remove(term.values, candidate)
        if not self._indexes[position]:
            del self._indexes[position]

    def _crowd(self, term: _Term) -> int:
        """How many filters share the values that a term demands."""
        position = self._fields.get(term.field)
        index = None if position is None else self._indexes.get(position)
        return 0 if index is None else index.crowd(term.values)

    def _test(self, expr: Expr) -> Predicate:
        """Compile a test, once for all filters that have it in common."""
        text = to_text(expr)
        test = self._tests.get(text)
        if test is None:
            effort = _TestEffort(self._searches)
            test = compile_filter(expr, self._functions, self._fields, effort)
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
    return filters.match(record.body, context)


class _Searches:
    """The long searches that the filters of a set have done.

    Attributes:
        messages: how many messages have been matched.
        left: long searches that there may be for the message at hand.
        left_in_all: the same, however `left` is renewed meanwhile.
    """

    __slots__ = ("_message", "left", "left_in_all", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._message = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """The message at hand is matched filter by filter, to find those that take too long."""
        self.left = LONG_SEARCHES
        self.left_in_all = 2 * LONG_SEARCHES

    def spend(self) -> None:
        """See `Effort.spend`."""
        if self._message != self.messages:
            self._message = self.messages
            self.begin_anew()
        if not (self.left and self.left_in_all):
            raise TooCostlyError
        self.left -= 1
        self.left_in_all -= 1


class _TestEffort:
    """Counts the long searches of one test: few at once, and one in many messages.

    Args:
        searches: those of all tests.
    """

    __slots__ = ("_counted", "_done", "_searches")

    def __init__(self, searches: _Searches) -> None:
        self._searches = searches
        self._done = 0.0  # of which some are forgotten with each message
        self._counted = searches.messages

    def spend(self) -> None:
        """See `Effort.spend`."""
        messages = self._searches.messages
        forgotten = (messages - self._counted) / _MESSAGES_PER_LONG_SEARCH
        self._done = max(0.0, self._done - forgotten) + 1
        self._counted = messages
        if self._done > LONG_SEARCHES:
            raise TooCostlyError
        self._searches.spend()


class _Plan(NamedTuple):
    """How a message is matched, in the form that takes the least time per message.

    Attributes:
        extract: reads the fields of all filters.
        scanned: the filters to test every message for.
        lookups: for each indexed field its position, a quick way to find candidates by its value
            and, for arrays, the thorough one.
    """

    extract: Extractor
    scanned: list[tuple[Filter, Predicate]]
    lookups: list[tuple[int, QuickFind, Callable[[Value], Iterable[Candidate]]]]


class _Term(NamedTuple):
    """A term that demands that a field equals one of some values.

    Attributes:
        field: the field.
        values: the values.
        rest: the filter's other terms, None if there are none.
    """

    field: Reference
    values: Membership
    rest: Expr | None

    @property
    def is_void(self) -> bool:
        """Whether no message can have what it demands, as with `/a = ''`."""
        return not (self.values.texts or self.values.numbers)


def _indexable_terms(expr: Expr) -> Iterator[_Term]:
    terms = conjuncts(expr)
    for position, term in enumerate(terms):
        match term:
            case Comparison("=", Identifier() as field, Literal() as literal):
                literals: Sequence[Expr] = (literal,)
            case Comparison("=", Literal() as literal, Identifier() as field):
                literals = (literal,)
            case In(Identifier() as field, literals):
                pass
            case _:
                continue
        given = [item.value for item in literals if isinstance(item, Literal)]
        values = Membership(given)
        if len(given) == len(literals) and not values.large:
            rest = terms[:position] + terms[position + 1 :]
            yield _Term(field.reference, values, _joined(rest))


def _joined(terms: tuple[Expr, ...]) -> Expr | None:
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else And(terms)


class _FieldIndex:
    """The filters that demand values of one field, by value."""

    __slots__ = ("_numbers", "_text_numbers", "_texts")

    def __init__(self) -> None:
        self._texts: dict[str, _Candidates] = {}
        self._numbers: dict[float, _Candidates] = {}
        self._text_numbers: dict[float, _Candidates] = {}

    def __bool__(self) -> bool:
        return bool(self._texts or self._numbers or self._text_numbers)

    def add(self, values: Membership, candidate: Candidate) -> None:
        """Find a candidate by any of some values."""
        for word in values.texts:
            self._texts.setdefault(word, {})[candidate] = None
        for number in values.numbers:
            self._numbers.setdefault(number, {})[candidate] = None
        for number in values.text_numbers:
            self._text_numbers.setdefault(number, {})[candidate] = None

    def remove(self, values: Membership, candidate: Candidate) -> None:
        """Find a candidate no more."""
        _remove(self._texts, values.texts, candidate)
        _remove(self._numbers, values.numbers, candidate)
        _remove(self._text_numbers, values.text_numbers, candidate)

    def crowd(self, values: Membership) -> int:
        """How many filters are found by the busiest of some values."""
        lists = [self._texts.get(word, ()) for word in values.texts]
        lists += [self._numbers.get(number, ()) for number in values.numbers]
        return max(map(len, lists), default=0)

    @property
    def quick_find(self) -> QuickFind:
        """Finds candidates for a value that is no array.

        A dictionary's own `get` where all literals are texts that no number equals.
        """
        if self._numbers or self._text_numbers:
            return self._find_scalar
        return self._texts.get

    def find(self, value: Value) -> Iterable[Candidate]:
        """Find the candidates for a message's value: for an array, those of any element."""
        if isinstance(value, list):
            return dict.fromkeys(candidate for item in value for candidate in self.find(item))
        return self._find_scalar(value, _NOBODY)

    def _find_scalar(self, value: str | float | None, nobody: _Candidates) -> Iterable[Candidate]:
        if isinstance(value, str):
            found = self._texts.get(value, nobody)
            if self._numbers and (number := numeral(value)) is not None:
                return [*found, *self._numbers.get(number, nobody)]
            return found
        if isinstance(value, list):
            raise TypeError
        if value is None:
            return nobody
        found = self._numbers.get(value, nobody)
        if self._text_numbers:
            return [*found, *self._text_numbers.get(value, nobody)]
        return found


_NOBODY: Final[_Candidates] = {}


def _remove(
    by_value: dict[_Key, _Candidates], values: Iterable[_Key], candidate: Candidate
) -> None:
    for value in values:
        candidates = by_value[value]
        del candidates[candidate]
        if not candidates:
            del by_value[value]


def _nobody_is_told(_filter: Filter, _error: Exception) -> None:
    """There is no filter that could fail."""


NO_FILTERS: Final = FilterSet(cast("MessageType", None), BUILTINS, _nobody_is_told)
"""The filters of a topic that has none: always false, and nothing is matched against it."""
