"""Pushdown: the part of a query that the scan of a table does: columns, filter, limit.

Filters of the expression language and conditions of SQL differ in these ways, for the same record:

    the empty text     NULL in filters; a text in SQL, which is less than all others
    NaN                in filters, neither less nor greater than anything; in SQL the greatest
    text and number    in filters, compared as numbers if the text is one; in SQL an error, or a
                       conversion of the column
    large numbers      an integer and a double compare as doubles in filters; exactly or as decimals
                       in SQL

So a condition is pushed down only in a form that is true for all rows for which the condition is
true. If it is true for no others, it is *exact*, and DuckDB need not test it again; the column is
not even scanned, if nothing else reads it. If it may be true for other rows, DuckDB tests the
condition as well.

Negations are moved inwards first: `NOT (a > 1)` is `a <= 1` in SQL, NULL or not. Then only tests of
single columns are left, joined by AND and OR, which keep exactness. Of a conjunction, the parts
that can be translated are used; a disjunction needs all of them.

A condition on the table that an outer join may replace by NULLs is not pushed down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple, TypeGuard

from sqlglot import exp

from server.expressions import ExpressionError, parse, to_text
from server.expressions import tree as amps
from server.sql.query.as_of import resolve_versions
from server.sql.query.log_bounds import BoundFinder, no_evaluation
from server.sql.query.names import TableReference, used_columns
from server.sql.query.tables import AsOf, Column, LogBound, ScanRequest, SqlType, TableKind

MAX_FILTER_NODES: Final = 2_000
MAX_FILTER_DEPTH: Final = 60
MAX_FILTER_LITERALS: Final = 10_000
MAX_FILTER_CHARACTERS: Final = 500_000
MAX_EXACT: Final = 2**53 - 1
"""The magnitude up to which integers are doubles, exactly."""

_MAX_DIGITS: Final = 15
"""Decimal digits that a double keeps, so that decimals and doubles round to the same number."""

Constant = bool | int | float | Decimal | str | None


class Pushed(NamedTuple):
    """A condition as a filter.

    Attributes:
        filter: the filter.
        is_exact: true for exactly the same rows; if not, for more.
        texts: a column, and the texts of which it has to be one in the rows of the condition; None
            if an inexact one has to be tested by DuckDB.
    """

    filter: amps.Expr
    is_exact: bool
    texts: tuple[str, tuple[str, ...]] | None = None


class PlannedScan(NamedTuple):
    """The scan of one reference to a table.

    Attributes:
        reference: the place in the query.
        request: the scan.
        residual: conditions that DuckDB tests, as SQL, for EXPLAIN.
    """

    reference: TableReference
    request: ScanRequest
    residual: tuple[str, ...]


def resolve_moment(
    version: exp.Version,
    parameters: Mapping[int, object],
    evaluate_time: Callable[[exp.Expr], int | None],
) -> AsOf:
    """Return the moment of AS OF.

    Args:
        version: the clause.
        parameters: the values of parameters by their numbers.
        evaluate_time: see `BoundFinder`.

    Raises:
        SqlError: not a time, or no bookmark.
    """
    constant = _Translator(_Scope(exp.Select(), ()), parameters).constant
    return resolve_versions({0: version}, constant, evaluate_time)[0]


def plan_scans(
    tree: exp.Expr,
    references: Sequence[TableReference],
    parameters: Mapping[int, object],
    *,
    is_enabled: bool = True,
    evaluate_time: Callable[[exp.Expr], int | None] = no_evaluation,
    versions: Mapping[int, exp.Version] | None = None,
) -> list[PlannedScan]:
    """Return a scan for each reference to a table of the source.

    Conditions that scans test exactly are removed from the tree.

    Args:
        tree: the query, rewritten for DuckDB.
        references: its tables.
        parameters: the values of parameters by their numbers.
        is_enabled: False scans whole tables, to compare results in tests.
        evaluate_time: see `BoundFinder`.
        versions: the moments as of which tables are read, by the identity of their nodes.

    Raises:
        SqlError: not a time, or a condition cannot be decided.
    """
    filters: dict[int, list[amps.Expr]] = {}
    residuals: dict[int, list[str]] = {}
    bounds: dict[int, list[LogBound]] = {}
    if is_enabled:
        for select in list(tree.find_all(exp.Select)):
            _push_conditions(
                select, references, parameters, filters, residuals, bounds, evaluate_time
            )
    constant = _Translator(_Scope(exp.Select(), ()), parameters).constant
    as_of = resolve_versions(versions or {}, constant, evaluate_time)
    columns = used_columns(tree, references)
    limit = _limit(tree, references, parameters) if is_enabled else None
    scans = []
    for reference in references:
        table = reference.relation.table
        if table is None:
            continue
        key = id(reference.node)
        filter_ = _bounded(filters.get(key, []))
        needed = columns[key]
        request = ScanRequest(
            table,
            tuple(column.name for column in table.columns if column.name in needed),
            None if filter_ is None else to_text(filter_),
            limit,
            tuple(dict.fromkeys(bounds.get(key, ()))),
            as_of.get(key),
        )
        scans.append(PlannedScan(reference, request, tuple(residuals.get(key, ()))))
    return scans


def _push_conditions(
    select: exp.Select,
    references: Sequence[TableReference],
    parameters: Mapping[int, object],
    filters: dict[int, list[amps.Expr]],
    residuals: dict[int, list[str]],
    bounds: dict[int, list[LogBound]],
    evaluate_time: Callable[[exp.Expr], int | None],
) -> None:
    where = select.args.get("where")
    if where is None:
        return
    scope = _Scope(select, references)
    if not scope.candidates:
        return
    kept: list[exp.Expr] = []
    translator = _Translator(scope, parameters)
    finder = BoundFinder(scope.time_column, translator.constant, evaluate_time)
    for condition in _conjuncts(where.this):
        owner = scope.owner(condition)
        pushed = None
        if owner is not None:
            found = finder.find(condition)
            if found is not None:
                bounds.setdefault(id(owner.node), []).extend(found.bounds)
                if found.is_exact:
                    continue
            pushed = translator.translate(condition, is_negated=False)
            others = filters.get(id(owner.node), ())
            if pushed is not None and not _is_bounded(pushed.filter, others):
                pushed = None
        if pushed is not None and owner is not None:
            filters.setdefault(id(owner.node), []).append(pushed.filter)
        if pushed is None or not pushed.is_exact:
            finder.check(condition)
            kept.append(condition)
            for item in [owner] if owner is not None else scope.candidates:
                residuals.setdefault(id(item.node), []).append(condition.sql(dialect="postgres"))
    if not kept:
        select.set("where", None)
    else:
        select.set("where", exp.Where(this=exp.and_(*kept, copy=False)))


class ExactScan(NamedTuple):
    """What a scan does for a SELECT, if nothing is left for DuckDB.

    Attributes:
        filter: the filter; None for all rows.
        limit: the maximum number of rows, with those that OFFSET skips; None for all.
        skipped: the number of rows that OFFSET skips.
        texts: the columns of texts whose values have to be tested again, and the values; then
            `limit` is for the rows that pass.
    """

    filter: str | None
    limit: int | None
    skipped: int
    texts: tuple[tuple[str, tuple[str, ...]], ...] = ()


def plan_exact_scan(
    select: exp.Select, reference: TableReference, parameters: Mapping[int, object]
) -> ExactScan | None:
    """Return the scan for a SELECT with WHERE, LIMIT and OFFSET only, which stays as it is.

    Args:
        select: the query, with folded identifiers.
        reference: its only table.
        parameters: the values of parameters by their numbers.

    Returns:
        None if DuckDB has to test a condition, or to decide about an error.
    """
    translator = _Translator(_Scope(select, (reference,)), parameters)
    where = select.args.get("where")
    filters: list[amps.Expr] = []
    texts: list[tuple[str, tuple[str, ...]]] = []
    for condition in () if where is None else _conjuncts(where.this):
        pushed = translator.translate(condition, is_negated=False)
        if pushed is None or not _is_bounded(pushed.filter, filters):
            return None
        if not pushed.is_exact:
            if pushed.texts is None:
                return None
            texts.append(pushed.texts)
        filters.append(pushed.filter)
    filter_ = _bounded(filters)
    limit, offset = select.args.get("limit"), select.args.get("offset")
    count = None if limit is None else translator.constant(limit.expression)
    skipped = 0 if offset is None else translator.constant(offset.expression)
    if not _is_count(skipped) or not (limit is None or _is_count(count)):
        return None
    return ExactScan(
        None if filter_ is None else to_text(filter_),
        count + skipped if _is_count(count) else None,
        skipped,
        tuple(texts),
    )


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    pending, found = [condition], []
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending.extend((node.expression, node.this))
        else:
            found.append(node)
    return found


class _Scope:
    """The tables of one SELECT, for names in its WHERE.

    Attributes:
        candidates: the tables whose rows are not replaced by NULLs of an outer join.
    """

    def __init__(self, select: exp.Select, references: Sequence[TableReference]) -> None:
        by_node = {id(item.node): item for item in references}
        preserved: list[exp.Expr] = []
        self._is_plain = True
        from_ = select.args.get("from_")
        if from_ is not None:
            preserved.append(from_.this)
        everything = list(preserved)
        if select.args.get("laterals"):
            self._is_plain = False
        for join in select.args.get("joins") or ():
            side = str(join.args.get("side") or "").upper()
            everything.append(join.this)
            if side == "FULL":
                preserved = []
            elif side == "RIGHT":
                preserved = [join.this]
            elif side != "LEFT":
                preserved.append(join.this)
            if join.args.get("using") or join.args.get("method"):
                self._is_plain = False  # unqualified names are of both tables
        tables = [by_node[id(node)] for node in everything if id(node) in by_node]
        if len(tables) != len(everything):
            self._is_plain = False
        self._tables = tables
        self._aliases = [item.alias for item in tables]
        self.candidates = [
            by_node[id(node)]
            for node in preserved
            if id(node) in by_node
            and by_node[id(node)].relation.table is not None
            and not node.args.get("joins")
            and not (node.args.get("alias") and node.args["alias"].columns)
            and not node.args.get("sample")
        ]

    def owner(self, condition: exp.Expr) -> TableReference | None:
        """Return the only candidate whose columns a condition reads; None if there is no such."""
        if condition.find(exp.Query) is not None:
            return None
        owners: dict[int, TableReference] = {}
        for column in condition.find_all(exp.Column):
            reference = self._reference(column)
            if reference is None:
                return None
            owners[id(reference.node)] = reference
        if len(owners) != 1:
            return None
        (owner,) = owners.values()
        return owner if any(owner is item for item in self.candidates) else None

    def _reference(self, column: exp.Column) -> TableReference | None:
        if column.table:
            found = [item for item in self._tables if item.alias == column.table]
            return found[0] if len(found) == 1 and self._aliases.count(column.table) == 1 else None
        if not self._is_plain:
            return None
        found = [item for item in self._tables if item.relation.column(column.name) is not None]
        return found[0] if len(found) == 1 else None

    def time_column(self, node: exp.Expr) -> Column | None:
        """Return the column of a table in the order of time that a node is."""
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column):
            return None
        reference = self._reference(node)
        table = None if reference is None else reference.relation.table
        return self.column(node) if table and table.kind in _IN_ORDER_OF_TIME else None

    def column(self, node: exp.Expr) -> Column | None:
        """Return the column of the source that a node reads."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast):
            inner = self.column(node.this)
            return inner if inner is not None and _is_identity(node, inner) else None
        if not isinstance(node, exp.Column):
            return None
        reference = self._reference(node)
        if reference is None or reference.relation.table is None:
            return None
        known = reference.relation.column(node.name)
        return next(
            (
                item
                for item in reference.relation.table.columns
                if known and item.name == known.name
            ),
            None,
        )


_IN_ORDER_OF_TIME: Final = (TableKind.HISTORY, TableKind.STATISTICS)
_IDENTITIES: Final = {
    SqlType.TEXT: ("VARCHAR", "TEXT"),
    SqlType.BIGINT: ("BIGINT",),
    SqlType.DOUBLE: ("DOUBLE",),
    SqlType.BOOLEAN: ("BOOLEAN",),
}


def _is_identity(cast: exp.Cast, column: Column) -> bool:
    return cast.to.sql(dialect="duckdb").upper() in _IDENTITIES.get(column.type, ())


# ---- translation

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class _Translator:
    """Translates conditions on one table."""

    def __init__(self, scope: _Scope, parameters: Mapping[int, object]) -> None:
        self._scope = scope
        self._parameters = parameters

    def translate(self, node: exp.Expr, *, is_negated: bool) -> Pushed | None:
        """Return a condition, or its negation, as a filter; None if there is none."""
        if node.args.get("negate"):  # NOT LIKE, IS NOT
            is_negated = not is_negated
        match node:
            case exp.Paren():
                return self.translate(node.this, is_negated=is_negated)
            case exp.Not():
                return self.translate(node.this, is_negated=not is_negated)
            case exp.And() | exp.Or():
                return self._connector(node, is_negated)
            case exp.Between():
                return self._between(node, is_negated)
            case exp.In():
                return self._in(node, is_negated)
            case exp.Is():
                return self._is(node, is_negated)
            case exp.Like():
                return self._like(node, is_negated)
            case exp.StartsWith():
                return self._affix(node, is_negated)
            case exp.Column():
                return _truth(self._scope.column(node), value=not is_negated)
            case _ if type(node) in _COMPARISONS:
                return self._comparison(node, is_negated)
            case _:
                return None

    def _connector(self, node: exp.Connector, is_negated: bool) -> Pushed | None:
        operands = [
            self.translate(operand, is_negated=is_negated)
            for operand in _operands(node, type(node))
        ]
        found = [operand for operand in operands if operand is not None]
        is_conjunction = isinstance(node, exp.And) != is_negated
        is_exact = len(found) == len(operands) and all(item.is_exact for item in found)
        if not found or (not is_conjunction and len(found) != len(operands)):
            return None
        join = _all if is_conjunction else _any
        return Pushed(join(item.filter for item in found), is_exact)

    def _comparison(self, node: exp.Expr, is_negated: bool) -> Pushed | None:
        sign = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        members = self._members(right)
        if members is not None:
            kind = right if isinstance(right, exp.Any) else None
            if kind is not None and sign == "=":
                return self._membership(self._scope.column(left), members, is_negated)
            if kind is None and sign == "!=":
                return self._membership(self._scope.column(left), members, not is_negated)
            return None
        column = self._scope.column(left)
        value = self.constant(right)
        if column is None:
            column, value = self._scope.column(right), self.constant(left)
            sign = _FLIPPED[sign]
        if column is None or value is _NOT_CONSTANT or value is None:
            return None
        return _compare(column, _NEGATED[sign] if is_negated else sign, value)

    def _members(self, node: exp.Expr) -> list[object] | None:
        """Return the elements of `ANY (array)` and `ALL (array)`."""
        if isinstance(node, exp.Any):
            operand = node.this
        elif isinstance(node, exp.Anonymous) and node.name.lower() == "all":
            operand = node.expressions[0] if len(node.expressions) == 1 else None
        else:
            return None
        while isinstance(operand, exp.Paren | exp.Cast):
            operand = operand.this
        if isinstance(operand, exp.Parameter):
            values = self._parameters.get(int(operand.this.name))
            return list(values) if isinstance(values, list | tuple) else [_NOT_CONSTANT]
        if isinstance(operand, exp.Array):
            return [self.constant(item) for item in operand.expressions]
        return [_NOT_CONSTANT]

    def _between(self, node: exp.Between, is_negated: bool) -> Pushed | None:
        column = self._scope.column(node.this)
        low, high = self.constant(node.args["low"]), self.constant(node.args["high"])
        if column is None or node.args.get("symmetric") or None in (low, high):
            return None
        if low is _NOT_CONSTANT or high is _NOT_CONSTANT:
            return None
        first = _compare(column, "<" if is_negated else ">=", low)
        second = _compare(column, ">" if is_negated else "<=", high)
        if first is None or second is None:
            bound = first or second
            return None if is_negated or bound is None else Pushed(bound.filter, is_exact=False)
        join = _any if is_negated else _all
        return Pushed(join((first.filter, second.filter)), first.is_exact and second.is_exact)

    def _in(self, node: exp.In, is_negated: bool) -> Pushed | None:
        if node.args.get("query") or node.args.get("unnest") or not node.expressions:
            return None
        values = [self.constant(item) for item in node.expressions]
        return self._membership(self._scope.column(node.this), values, is_negated)

    def _membership(
        self, column: Column | None, values: list[object], is_negated: bool
    ) -> Pushed | None:
        path = _path(column)
        if column is None or path is None or len(values) > MAX_FILTER_LITERALS:
            return None
        present = [value for value in values if value is not None]
        if any(value is _NOT_CONSTANT for value in values) or not present:
            return None
        if is_negated and len(present) != len(values):
            return None
        literals = [_literal(column, value) for value in present]
        if any(literal is None for literal in literals):
            return None
        texts = tuple(
            literal for literal in literals if literal is not None and literal.value != ""
        )
        has_empty = len(texts) != len(literals)
        if not texts:
            return _compare(column, "!=" if is_negated else "=", "")
        test: amps.Expr = amps.In(path, texts)
        if column.type is not SqlType.TEXT:
            return Pushed(amps.Not(test) if is_negated else test, is_exact=True)
        if is_negated or any(_is_text_of_other_value(str(one.value)) for one in texts):
            return None
        found = _any((test, amps.IsNull(path))) if has_empty else test
        demanded = tuple(str(literal.value) for literal in literals if literal is not None)
        return Pushed(found, is_exact=False, texts=(column.name, demanded))

    def _is(self, node: exp.Is, is_negated: bool) -> Pushed | None:
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None:
            return None
        if isinstance(node.expression, exp.Null):
            if is_negated:
                is_exact = column.type in _NEVER_EMPTY
                return Pushed(amps.Not(amps.IsNull(path)), True) if is_exact else None
            return Pushed(amps.IsNull(path), column.type in _NEVER_EMPTY)
        if isinstance(node.expression, exp.Boolean):
            value = bool(node.expression.this)
            if not is_negated:
                return _truth(column, value=value)
            opposite = _truth(column, value=not value)
            if opposite is None:
                return None
            return Pushed(_any((opposite.filter, amps.IsNull(path))), opposite.is_exact)
        return None

    def _like(self, node: exp.Like, is_negated: bool) -> Pushed | None:
        if isinstance(node.parent, exp.Escape):
            return None
        pattern = self.constant(node.expression)
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None or column.type is not SqlType.TEXT:
            return None
        if not isinstance(pattern, str) or re.search(r"[\\_]", pattern):
            return None
        core = pattern.removesuffix("%")
        literal = _literal(column, core)
        if "%" in core or not core or literal is None or _is_text_of_other_value(core):
            return None
        test: amps.Expr = amps.Affix("BEGINS WITH", path, (literal,))
        if core == pattern:
            test = amps.Comparison("=", path, literal)
        return _text_test(test, is_negated)

    def _affix(self, node: exp.StartsWith, is_negated: bool) -> Pushed | None:
        prefix = self.constant(node.expression)
        column = self._scope.column(node.this)
        path = _path(column)
        if column is None or path is None or column.type is not SqlType.TEXT:
            return None
        literal = _literal(column, prefix) if isinstance(prefix, str) and prefix else None
        if literal is None or _is_text_of_other_value(str(prefix)):
            return None
        return _text_test(amps.Affix("BEGINS WITH", path, (literal,)), is_negated)

    def constant(self, node: exp.Expr) -> object:
        """Return the value of a constant or a parameter; `_NOT_CONSTANT` for anything else."""
        match node:
            case exp.Paren():
                return self.constant(node.this)
            case exp.Literal():
                return _Unknown(node.name) if node.is_string else _number(node.name)
            case exp.Neg():
                value = self.constant(node.this)
                is_number = isinstance(value, int | float | Decimal)
                return -value if is_number else _NOT_CONSTANT  # type: ignore[operator]  # a number
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Parameter():
                return self._parameters.get(int(node.this.name))
            case exp.Cast():
                return _converted(self.constant(node.this), node.to.sql(dialect="duckdb"))
            case _:
                return _NOT_CONSTANT


class _Unknown(str):
    """A quoted literal without a type, which takes the type of the column it is compared with."""

    __slots__ = ()


_NOT_CONSTANT: Final = object()

_NEVER_EMPTY: Final = frozenset({SqlType.BIGINT, SqlType.DOUBLE, SqlType.BOOLEAN})
"""Types of columns none of whose values is NULL in filters alone."""


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    pending, found = [node], []
    while pending:
        item = pending.pop()
        if isinstance(item, exp.Paren) and isinstance(item.this, kind):
            pending.append(item.this)
        elif isinstance(item, kind):
            pending.extend((item.expression, item.this))
        else:
            found.append(item)
    return found


def _compare(column: Column, sign: str, value: object) -> Pushed | None:
    """Return `column sign value` as a filter."""
    path = _path(column)
    if path is None:
        return None
    if column.type is SqlType.BOOLEAN:
        if not isinstance(value, bool) or sign not in ("=", "!="):
            return None
        return _truth(column, value=value == (sign == "="))
    literal = _literal(column, value)
    if literal is None:
        return None
    test = amps.Comparison(sign, path, literal)
    if column.type is SqlType.BIGINT:
        if isinstance(literal.value, float) and sign in ("=", "!="):
            return None  # decided without the record
        return Pushed(test, is_exact=True)
    if column.type is SqlType.DOUBLE:
        if sign in (">", ">="):  # NaN is the greatest in SQL
            return Pushed(_any((test, amps.IsNan(path))), is_exact=True)
        return Pushed(test, is_exact=True)
    return _compare_text(column, path, sign, literal)


def _compare_text(
    column: Column, path: amps.Expr, sign: str, literal: amps.Literal
) -> Pushed | None:
    """Return the comparison of a column of texts with a text as a filter.

    Such a column has numbers, Booleans, arrays and objects as texts, which filters do not compare
    as texts. So only `=` finds all rows, and more: a numeral finds all numbers and texts of its
    value, and any text an array that has it.
    """
    if literal.value == "":
        return _compare_with_empty(path, sign)
    if sign != "=" or _is_text_of_other_value(str(literal.value)):
        return None
    test = amps.Comparison(sign, path, literal)
    return Pushed(test, is_exact=False, texts=(column.name, (str(literal.value),)))


def _is_text_of_other_value(text: str) -> bool:
    """Return whether a text may begin that of a Boolean, an array or an object."""
    return text.startswith(("[", "{")) or any(one.startswith(text) for one in ("true", "false"))


def _compare_with_empty(path: amps.Expr, sign: str) -> Pushed | None:
    if sign in ("!=", ">"):
        return Pushed(amps.Not(amps.IsNull(path)), is_exact=True)
    if sign in ("=", "<="):
        return Pushed(amps.IsNull(path), is_exact=False)
    return None


def _truth(column: Column | None, *, value: bool) -> Pushed | None:
    path = _path(column)
    if column is None or path is None or column.type is not SqlType.BOOLEAN:
        return None
    return Pushed(amps.Comparison("=", path, amps.Literal(int(value))), is_exact=True)


def _text_test(test: amps.Expr, is_negated: bool) -> Pushed | None:
    """Return a test of a text that the empty text does not pass."""
    return None if is_negated else Pushed(test, is_exact=False)


def _literal(column: Column, value: object) -> amps.Literal | None:
    """Return a constant as a literal that compares with the column's values as in SQL."""
    if column.type is SqlType.TEXT:
        if not isinstance(value, str) or not _is_plain_text(value):
            return None
        return amps.Literal(str(value))
    if isinstance(value, bool):
        return None
    if isinstance(value, _Unknown):
        value = _number(value.strip())
    if column.type is SqlType.BIGINT:
        return _integer_literal(value)
    if column.type is SqlType.DOUBLE:
        return _double_literal(value)
    return None


def _is_plain_text(value: str) -> bool:
    """Return whether a text is in a record exactly if it is in the column.

    Bodies with bytes that are no UTF-8 have U+FFFD in columns.
    """
    if "\ufffd" in value or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _integer_literal(value: object) -> amps.Literal | None:
    if isinstance(value, int):
        return amps.Literal(value) if -(2**63) < value < 2**63 else None
    if isinstance(value, float):
        value = Decimal(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < MAX_EXACT:
        return amps.Literal(int(value)) if value == int(value) else _double_literal(value)
    return None


def _double_literal(value: object) -> amps.Literal | None:
    if isinstance(value, int):
        return amps.Literal(value) if abs(value) <= MAX_EXACT else None
    if isinstance(value, Decimal):
        if not value.is_finite() or len(value.as_tuple().digits) > _MAX_DIGITS:
            return None
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    if value and not 1e-15 < abs(value) < 1e15:
        return None
    return amps.Literal(value)


def _number(text: str) -> object:
    """Return the value of a numeric literal as PostgreSQL types it."""
    if re.fullmatch(r"[+-]?\d{1,30}", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d{1,30}\.\d{0,30}|\.\d{1,30})", text):
        return Decimal(text)
    return _NOT_CONSTANT


def _converted(value: object, duckdb: str) -> object:
    """Return a constant after a cast; `_NOT_CONSTANT` if the cast might change it otherwise."""
    if value is None or value is _NOT_CONSTANT:
        return value
    kind = duckdb.upper()
    if kind in ("VARCHAR", "TEXT"):
        return str(value) if isinstance(value, str) else _NOT_CONSTANT
    if isinstance(value, _Unknown):
        value = _number(value.strip())
    if kind in _INTEGER_BITS:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        bits = _INTEGER_BITS[kind]
        fits = is_integer and -(2 ** (bits - 1)) <= int(str(value)) < 2 ** (bits - 1)
        return value if fits else _NOT_CONSTANT
    if kind in ("DOUBLE", "FLOAT8"):
        if isinstance(value, float):
            return value
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return float(value) if -MAX_EXACT <= value <= MAX_EXACT else _NOT_CONSTANT
        return _NOT_CONSTANT
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else _NOT_CONSTANT
    return _NOT_CONSTANT


_INTEGER_BITS: Final = {"BIGINT": 64, "INT": 32, "INTEGER": 32, "SMALLINT": 16}


@lru_cache(maxsize=10_000)
def _parsed_path(path: str) -> amps.Expr | None:
    try:
        return parse(path)
    except ExpressionError:
        return None


def _path(column: Column | None) -> amps.Expr | None:
    return None if column is None or column.path is None else _parsed_path(column.path)


def _all(terms: Iterable[amps.Expr]) -> amps.Expr:
    flat = _flattened(terms, amps.And)
    return flat[0] if len(flat) == 1 else amps.And(flat)


def _any(terms: Iterable[amps.Expr]) -> amps.Expr:
    flat = _flattened(terms, amps.Or)
    return flat[0] if len(flat) == 1 else amps.Or(flat)


def _flattened(
    terms: Iterable[amps.Expr], kind: type[amps.And] | type[amps.Or]
) -> tuple[amps.Expr, ...]:
    flat: list[amps.Expr] = []
    for term in terms:
        flat.extend(term.operands if isinstance(term, kind) else (term,))
    return tuple(dict.fromkeys(flat))


def _is_bounded(filter_: amps.Expr, others: Iterable[amps.Expr]) -> bool:
    """Return whether a filter can be parsed and applied, with others for the same table."""
    if amps.height(filter_) > MAX_FILTER_DEPTH:
        return False
    nodes = literals = 0
    for node in amps.walk(filter_):
        if isinstance(node, amps.Literal):
            literals += 1
        else:
            nodes += 1
    if nodes > MAX_FILTER_NODES or literals > MAX_FILTER_LITERALS:
        return False
    return sum(len(to_text(one)) for one in (*others, filter_)) <= MAX_FILTER_CHARACTERS


def _bounded(filters: list[amps.Expr]) -> amps.Expr | None:
    return _all(filters) if filters else None


# ---- limit


def _limit(
    tree: exp.Expr, references: Sequence[TableReference], parameters: Mapping[int, object]
) -> int | None:
    """Return the number of rows that suffices, if any rows of the only table do."""
    if not isinstance(tree, exp.Select) or len(references) != 1:
        return None
    if (
        any(tree.args.get(name) for name in _ORDERING)
        or sum(1 for _ in tree.find_all(exp.Query)) > 1
    ):
        return None
    if tree.find(exp.AggFunc, exp.Window, exp.Explode, exp.Unnest, exp.Anonymous) is not None:
        return None
    limit = tree.args.get("limit")
    offset = tree.args.get("offset")
    if not isinstance(limit, exp.Limit | exp.Fetch):
        return None
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
        return None
    constant: Callable[[exp.Expr], object] = _Translator(
        _Scope(tree, references), parameters
    ).constant
    count = constant(limit.args.get("expression") or limit.args.get("count") or exp.null())
    skipped = constant(offset.expression) if offset is not None else 0
    if not isinstance(count, int) or not isinstance(skipped, int):
        return None
    return count + skipped if count >= 0 and skipped >= 0 else None


_ORDERING: Final = (
    *("where", "group", "having", "qualify", "order", "distinct", "joins", "laterals", "with_"),
    *("windows", "sort", "cluster", "distribute", "match", "connect", "sample"),
)
"""Parts of a SELECT that need all rows, or may drop some."""
