"""Pushdown: the part of a query that the scan of a table does: columns, filter, limit.

A condition becomes a filter in a form that is true for all rows for which it is true
(`condition_filters`). If that is *exact*, DuckDB need not test the condition again, and the column
is not even scanned, if nothing else reads it; otherwise DuckDB tests it as well.

A condition on the table that an outer join may replace by NULLs is not pushed down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from sqlglot import exp

from server.expressions import to_text
from server.expressions import tree as amps
from server.sql.query.as_of import resolve_versions
from server.sql.query.condition_filters import ConditionTranslator, all_of, is_bounded
from server.sql.query.log_bounds import BoundFinder, no_evaluation
from server.sql.query.names import TableReference, used_columns
from server.sql.query.select_scope import SelectScope
from server.sql.query.tables import AsOf, LogBound, ScanRequest


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
    constant = ConditionTranslator(SelectScope(exp.Select(), ()), parameters).constant
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
    constant = ConditionTranslator(SelectScope(exp.Select(), ()), parameters).constant
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
    scope = SelectScope(select, references)
    if not scope.candidates:
        return
    kept: list[exp.Expr] = []
    translator = ConditionTranslator(scope, parameters)
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
            if pushed is not None and not is_bounded(pushed.filter, others):
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
    """The part of a scan in a SELECT, if nothing is left for DuckDB.

    Attributes:
        filter: the filter; None for all rows.
        limit: the maximum number of rows, including rows that OFFSET skips; None for all.
        skipped: the number of rows that OFFSET skips.
        texts: the columns of texts to be tested again, and the values; then
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
    translator = ConditionTranslator(SelectScope(select, (reference,)), parameters)
    where = select.args.get("where")
    filters: list[amps.Expr] = []
    texts: list[tuple[str, tuple[str, ...]]] = []
    for condition in () if where is None else _conjuncts(where.this):
        pushed = translator.translate(condition, is_negated=False)
        if pushed is None or not is_bounded(pushed.filter, filters):
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


def _bounded(filters: list[amps.Expr]) -> amps.Expr | None:
    return all_of(filters) if filters else None


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
    constant: Callable[[exp.Expr], object] = ConditionTranslator(
        SelectScope(tree, references), parameters
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
