"""DuckDB's errors as PostgreSQL's, with SQLSTATEs and positions in the client's text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from sqlglot import exp

from server.sql import sqlstate
from server.sql.query.errors import MEMORY_HINT, DuckDbError, SqlError
from server.sql.query.names import quote
from server.sql.query.processes.protocol import (
    MAX_ERROR_CHARACTERS,
    MAX_ROW_BYTES,
    NOT_ONE_QUERY,
    ROW_TOO_LARGE,
)
from server.sql.query.session import UNKNOWN_SETTING

_BY_CLASS: Final[tuple[tuple[str, str], ...]] = (
    ("OutOfMemoryException", sqlstate.OUT_OF_MEMORY),
    ("MemoryError", sqlstate.OUT_OF_MEMORY),
    (ROW_TOO_LARGE, sqlstate.PROGRAM_LIMIT_EXCEEDED),
    ("InterruptException", sqlstate.QUERY_CANCELED),
    ("ConversionException", sqlstate.INVALID_TEXT_REPRESENTATION),
    ("OutOfRangeException", sqlstate.NUMERIC_VALUE_OUT_OF_RANGE),
    ("ParserException", sqlstate.FEATURE_NOT_SUPPORTED),
    ("SyntaxException", sqlstate.FEATURE_NOT_SUPPORTED),
    ("NotImplementedException", sqlstate.FEATURE_NOT_SUPPORTED),
    ("PermissionException", sqlstate.INSUFFICIENT_PRIVILEGE),
    ("BinderException", sqlstate.DATATYPE_MISMATCH),
    ("CatalogException", sqlstate.UNDEFINED_OBJECT),
    ("InvalidInputException", sqlstate.DATA_EXCEPTION),
)

_PATTERNS: Final[tuple[tuple[str, str, str], ...]] = (
    (r"Division by zero", sqlstate.DIVISION_BY_ZERO, "division by zero"),
    (r"INTERRUPT|Interrupted!", sqlstate.QUERY_CANCELED, "canceling statement due to user request"),
    (
        r"Out of Memory Error|[Ff]ailed to allocate|std::bad_alloc",
        sqlstate.OUT_OF_MEMORY,
        "out of memory: the query needs more than MaxMemory",
    ),
    (
        r'Function with name "?([\w~!*<>=@#|]+)"? does not exist',
        sqlstate.UNDEFINED_FUNCTION,
        "function {}() does not exist",
    ),
    (
        r"No function matches the given name and argument types '([^']*)'",
        sqlstate.UNDEFINED_FUNCTION,
        "function {} does not exist",
    ),
    (
        r'Referenced table "([^"]*)" not found',
        sqlstate.UNDEFINED_TABLE,
        'missing FROM-clause entry for table "{}"',
    ),
    (
        r'Referenced column "([^"]*)" (?:was )?not found',
        sqlstate.UNDEFINED_COLUMN,
        'column "{}" does not exist',
    ),
    (
        r'(?:Table|Values list) "[^"]*" does not have a column named "([^"]*)"',
        sqlstate.UNDEFINED_COLUMN,
        'column "{}" does not exist',
    ),
    (
        r"Ambiguous reference to column name \"([^\"]*)\"",
        sqlstate.AMBIGUOUS_COLUMN,
        'column reference "{}" is ambiguous',
    ),
    (
        r'column "?([^"\s]+|(?<=")[^"]+)"? must appear in the GROUP BY',
        sqlstate.GROUPING_ERROR,
        'column "{}" must appear in the GROUP BY clause or be used in an aggregate function',
    ),
    (
        r"Type with name \"?([\w.]+)\"? does not exist",
        sqlstate.UNDEFINED_OBJECT,
        'type "{}" does not exist',
    ),
    (
        r"More than one row returned by a subquery",
        sqlstate.CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    ),
    (
        r"(\w+) clause cannot contain aggregates",
        sqlstate.GROUPING_ERROR,
        "aggregate functions are not allowed in {}",
    ),
    (
        r"(\w+) clause cannot contain window functions",
        sqlstate.WINDOWING_ERROR,
        "window functions are not allowed in {}",
    ),
    (
        r"Set operations can only apply to expressions with the same number of result columns",
        sqlstate.SYNTAX_ERROR,
        "each query of a set operation must have the same number of columns",
    ),
    (
        r"LIMIT/OFFSET cannot be negative",
        sqlstate.INVALID_ROW_COUNT_IN_LIMIT,
        "LIMIT and OFFSET must not be negative",
    ),
    (
        r"(ORDER|GROUP BY) term out of range",
        sqlstate.INVALID_COLUMN_REFERENCE,
        "{} has a position that is not in the select list",
    ),
    (
        r"value is out of range for the destination type (\w+)",
        sqlstate.NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range for type {}",
    ),
    (
        r'(?:date|timestamp|time) field value out of range: "([^"]*)"',
        sqlstate.DATETIME_FIELD_OVERFLOW,
        'date/time field value out of range: "{}"',
    ),
    (
        r'[Ii]nvalid (?:date|timestamp|time|interval) field format: "([^"]*)"',
        sqlstate.INVALID_DATETIME_FORMAT,
        'invalid input syntax for a date or time: "{}"',
    ),
    (rf'{UNKNOWN_SETTING} "([^"]*)"', sqlstate.UNDEFINED_OBJECT, f'{UNKNOWN_SETTING} "{{}}"'),
    (r"Max expression depth", sqlstate.STATEMENT_TOO_COMPLEX, "the query is nested too deeply"),
)  # fmt: skip

_HINTS: Final = {
    sqlstate.OUT_OF_MEMORY: MEMORY_HINT,
    sqlstate.PROGRAM_LIMIT_EXCEEDED: f"A row has at most {MAX_ROW_BYTES} bytes.",
    sqlstate.DATATYPE_MISMATCH: "Check the types of columns, and cast where they differ.",
}

_MAX_MESSAGE: Final = 500


def translate(error: DuckDbError, tree: exp.Expr | None, columns: Sequence[str] = ()) -> SqlError:
    """Return an error of DuckDB as the client gets it.

    Args:
        error: the error.
        tree: the query as the client wrote it, for the position of a name.
        columns: the columns of its tables, for a suggestion.
    """
    text = str(error)[:MAX_ERROR_CHARACTERS]
    if NOT_ONE_QUERY in error.kinds:
        return SqlError(sqlstate.SYNTAX_ERROR, "the statement cannot be read as one query")
    by_class = next(
        (state for kind, state in _BY_CLASS if kind in error.kinds), sqlstate.INTERNAL_ERROR
    )
    for pattern, state, message in _PATTERNS:
        match = re.search(pattern, text)
        if match is not None:
            name = match[1] if match.groups() else ""
            return SqlError(
                state,
                message.format(name),
                hint=_suggestion(text, state, name, columns) or _HINTS.get(state),
                position=_position(tree, name) if name else None,
            )
    message = _first_line(text)
    return SqlError(by_class, message, hint=_HINTS.get(by_class))


def _first_line(text: str) -> str:
    """Return the message without its kind, and without the lines that quote rewritten SQL."""
    line = re.split(r"\n\s*\n|\nLINE ", text.strip(), maxsplit=1)[0].replace("\n", " ")
    line = re.sub(r"^[\w ]+ Error: ", "", line)
    if line[1:2].islower():
        line = line[0].lower() + line[1:]
    return line[:_MAX_MESSAGE] or "the query failed"


def _suggestion(text: str, state: str, name: str, columns: Sequence[str]) -> str | None:
    if state == sqlstate.UNDEFINED_COLUMN:
        matches = get_close_matches(name, columns, n=1)
        if matches:
            return f"Perhaps you meant the column {quote(matches[0])}."
    if state == sqlstate.UNDEFINED_FUNCTION:
        found = re.search(r'Did you mean "([^"]+)"', text)
        if found and not found[1].startswith("amps_"):
            return f"Perhaps you meant {found[1]}()."
    return None


def _position(tree: exp.Expr | None, name: str) -> int | None:
    if tree is None:
        return None
    for column in tree.find_all(exp.Identifier):
        if column.name.lower() == name.lower() and column.meta.get("start") is not None:
            return int(column.meta["start"]) + 1
    return None
