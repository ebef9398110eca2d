"""Tables as of a moment, or as of a message: `AS OF` after the name of a table.

    orders AS OF '2026-11-30 10:00:00'                   SQL:2011 without its first words
    orders FOR SYSTEM_TIME AS OF now() - interval '1 h'  SQL:2011
    orders AS OF BOOKMARK '12345|6|'                     after that message
    orders FOR VERSION AS OF '12345|6|'                  the same, as Spark has it

An alias follows, as in SQL:2011. sqlglot knows the forms with FOR, so the others are completed
among the tokens. `OF` is a name, too: `AS OF` means a moment if a value follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from server.sql.query.errors import SqlError
from server.sql.query.tables import AsOf, TableKind
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE

if TYPE_CHECKING:
    from server.sql.query.names import TableReference

_VALUES: Final = frozenset({TokenType.STRING, TokenType.PARAMETER})
_TYPES: Final = frozenset({TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ, TokenType.DATE})
_FOR_WORDS: Final = frozenset({"SYSTEM_TIME", "VERSION", "TIMESTAMP"})


def complete_as_of(tokens: list[Token]) -> list[Token]:
    """Return tokens in which each AS OF has the words before it that sqlglot needs."""
    if not any(_is_word(token, "OF") for token in tokens):
        return tokens
    completed: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        follows = tokens[position + 1 : position + 4]
        if token.token_type is TokenType.ALIAS and follows and _is_word(follows[0], "OF"):
            has_for = bool(completed) and completed[-1].text.upper() in _FOR_WORDS
            is_bookmark = len(follows) > 1 and _is_word(follows[1], "BOOKMARK")
            value = follows[2:] if is_bookmark else follows[1:]
            if not has_for and _begins_value(value, is_bookmark=is_bookmark):
                kind = "VERSION" if is_bookmark else "SYSTEM_TIME"
                completed += [
                    _like(token, TokenType.FOR, "FOR"),
                    _like(token, TokenType.VAR, kind),
                    token,
                    follows[0],
                ]
                position += 3 if is_bookmark else 2
                continue
        completed.append(token)
        position += 1
    return completed


def _is_word(token: Token, word: str) -> bool:
    is_quoted = token.end - token.start + 1 != len(token.text)
    return not is_quoted and token.text.upper() == word


def _begins_value(tokens: Sequence[Token], *, is_bookmark: bool) -> bool:
    if not tokens:
        return False
    if tokens[0].token_type in _VALUES or is_bookmark:
        return tokens[0].token_type in _VALUES
    if len(tokens) > 1 and tokens[0].token_type in _TYPES:
        return tokens[1].token_type is TokenType.STRING
    if _is_word(tokens[0], "NOW"):
        return len(tokens) > 1 and tokens[1].token_type is TokenType.L_PAREN
    return _is_word(tokens[0], "CURRENT_TIMESTAMP")


def _like(token: Token, kind: TokenType, text: str) -> Token:
    """Return a token at the place of another one."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def take_versions(
    tree: exp.Expr, references: Sequence[TableReference]
) -> Mapping[int, exp.Version]:
    """Remove the moments from the tables of a query; return them by the identity of their nodes.

    Raises:
        SqlError: a moment is given for something else than a topic, or in another form.
    """
    versions: dict[int, exp.Version] = {}
    for reference in references:
        version = reference.node.args.get("version")
        if version is None:
            continue
        table = reference.relation.table
        if str(version.args.get("kind")).upper() != "AS OF":
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "a table is read as of one moment",
                hint="Write AS OF, or read the topic's table in the schema history.",
            )
        if table is None or table.kind in (TableKind.HISTORY, TableKind.STATISTICS):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f"{reference.relation.schema}.{reference.relation.name} has no past states",
                hint="Write a condition on _timestamp or _txid."
                if table is not None and table.kind is TableKind.HISTORY
                else None,
            )
        versions[id(reference.node)] = version
        reference.node.set("version", None)
    if tree.find(exp.Version) is not None:
        raise SqlError(FEATURE_NOT_SUPPORTED, "AS OF follows the name of a topic")
    return versions


def resolve_versions(
    versions: Mapping[int, exp.Version],
    constant: Callable[[exp.Expr], object],
    evaluate_time: Callable[[exp.Expr], int | None],
) -> Mapping[int, AsOf]:
    """Return the moments of tables, by the identity of their nodes.

    Args:
        versions: see `take_versions`.
        constant: returns the value of a constant or a parameter.
        evaluate_time: returns the microseconds since 1970 of an expression for a time.

    Raises:
        SqlError: not a time, or no bookmark.
    """
    resolved: dict[int, AsOf] = {}
    for node, version in versions.items():
        value = version.expression
        if str(version.this).upper() == "VERSION":
            bookmark = constant(value)
            if not isinstance(bookmark, str):
                raise SqlError(
                    INVALID_PARAMETER_VALUE, "AS OF BOOKMARK is followed by a bookmark, as a text"
                )
            resolved[node] = AsOf(bookmark=str(bookmark))
            continue
        if value.find(exp.Column, exp.Query) is not None:
            raise SqlError(FEATURE_NOT_SUPPORTED, "AS OF is followed by a time, without columns")
        timestamp_us = evaluate_time(value)
        if timestamp_us is None:
            raise SqlError(
                INVALID_PARAMETER_VALUE,
                "AS OF is followed by a time, such as '2026-11-30 10:00:00+00'",
                hint="For a bookmark, write AS OF BOOKMARK.",
            )
        resolved[node] = AsOf(timestamp_us)
    return resolved
