"""Statements as `statement_parser` returns them: their kinds, parameters and options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_PARAMETER_VALUE

if TYPE_CHECKING:
    from sqlglot import exp

    from server.sql.query.live_terms import LiveTerms, TopicName


class StatementKind(Enum):
    """The kind of a statement, which selects its executor."""

    SELECT = "select"
    EXPLAIN = "explain"
    COPY_OUT = "copy out"
    COPY_IN = "copy in"
    SHOW = "show"
    SET = "set"
    RESET = "reset"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    DISCARD = "discard"
    DEALLOCATE = "deallocate"
    DECLARE = "declare"
    FETCH = "fetch"
    MOVE = "move"
    CLOSE = "close"
    LISTEN = "listen"
    UNLISTEN = "unlisten"
    NOTIFY = "notify"
    WRITE = "write"


class CopyFormat(NamedTuple):
    """The format of the data of COPY.

    Attributes:
        format: text, csv or binary.
        delimiter: the separator of columns, one character.
        null: the text of NULL.
        header: a first line has the names of the columns.
        quote: the quotation mark of csv.
        escape: the character before a quotation mark within quotes.
        matches_header: the names of that line have to be those of the columns.
    """

    format: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    matches_header: bool = False


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        text: the statement.
        kind: the kind.
        tag: the command tag of its completion; SELECT, COPY, FETCH, MOVE and
            statements that write get a count after it.
        offset: offset of the statement in the text of all, to correct positions of errors.
        tree: the query of SELECT, EXPLAIN, COPY_OUT and DECLARE; the statement of WRITE, or of
            COPY_OUT with RETURNING; of SUBSCRIBE TO a query of its moment, if it has one. Of
            COPY_IN an INSERT into the columns, whose own rows mean nothing.
        parameter_count: the number of parameters `$1`, `$2`, ...
        name: the setting of SET, SHOW and RESET (ALL for all); the cursor of DECLARE, FETCH, MOVE
            and CLOSE, the prepared statement of DEALLOCATE, None for all; the savepoint; the target
            of DISCARD.
        value: the value of SET; None for its default. The payload of NOTIFY.
        is_local: SET LOCAL.
        count: the number of rows of FETCH and MOVE; None for all.
        options: words: of EXPLAIN (ANALYZE, VERBOSE), of DECLARE (HOLD, BINARY, SCROLL), of
            BEGIN and SET TRANSACTION (READ ONLY).
        copy: the format of COPY_OUT and COPY_IN.
        live: the terms of a SUBSCRIBE, which COPY_OUT and DECLARE may have in place of a query.
        topic: the topic of LISTEN, UNLISTEN and NOTIFY; None for all.
        timeout_s: how long FETCH waits for changes, in seconds; None until there is one.
        has_returning: whether a statement that writes returns rows.
    """

    text: str
    kind: StatementKind
    tag: str
    offset: int = 0
    tree: exp.Expr | None = None
    parameter_count: int = 0
    name: str | None = None
    value: str | None = None
    is_local: bool = False
    count: int | None = 1
    options: frozenset[str] = frozenset()
    copy: CopyFormat | None = None
    live: LiveTerms | None = None
    topic: TopicName | None = None
    timeout_s: float | None = None
    has_returning: bool = False


def copy_format(options: dict[str, str]) -> CopyFormat:
    """Return the format of COPY from its options, by their names in upper case.

    Raises:
        SqlError: an option is unknown or has no such value.
    """
    name = options.pop("FORMAT", "text").lower()
    if name not in ("text", "csv", "binary"):
        raise SqlError(INVALID_PARAMETER_VALUE, f'COPY format "{name}" not recognized')
    is_csv = name == "csv"
    given = options.pop("HEADER", "false").lower()
    header = given in ("true", "on", "1", "match")
    delimiter = options.pop("DELIMITER", "," if is_csv else "\t")
    null = options.pop("NULL", "" if is_csv else "\\N")
    quote = options.pop("QUOTE", '"')
    escape = options.pop("ESCAPE", quote)
    encoding = options.pop("ENCODING", "UTF8")
    if options:
        unknown = min(options).lower()
        raise SqlError(INVALID_PARAMETER_VALUE, f'option "{unknown}" not recognized')
    if any(len(text) != 1 for text in (delimiter, quote, escape)):
        raise SqlError(
            INVALID_PARAMETER_VALUE, "COPY delimiter, quote and escape must be one character each"
        )
    if encoding.upper().replace("-", "") != "UTF8":
        raise SqlError(INVALID_PARAMETER_VALUE, "the only encoding is UTF8")
    return CopyFormat(name, delimiter, null, header, quote, escape, given == "match")
