"""Tokens and trees of PostgreSQL's SQL, by sqlglot.

Importing this module imports sqlglot, which takes 0.3 s; so it is imported by functions that need
it, not by modules.

sqlglot's own splitting of statements reads the text of commands that it does not know up to the
next semicolon, within quotes too. So its tokenizer is configured without such commands, and
`statement` splits and classifies.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from server.sql.query.as_of import complete_as_of
from server.sql.query.errors import SqlError
from server.sql.sqlstate import STATEMENT_TOO_COMPLEX, SYNTAX_ERROR

MAX_TEXT_LENGTH: Final = 1_000_000
MAX_TOKENS: Final = 50_000
MAX_PARENTHESES: Final = 100
"""The depth of nested parentheses, brackets and CASE: sqlglot's parser recurses."""

logging.getLogger("sqlglot").setLevel(logging.ERROR)


class _Postgres(Postgres):
    """PostgreSQL, with all statements read as tokens."""

    class Tokenizer(Postgres.Tokenizer):
        """The tokenizer of PostgreSQL without commands."""

        COMMANDS: Final = set()  # type: ignore[misc]  # overrides the one of sqlglot
        KEYWORDS: Final = {  # type: ignore[misc]  # `oid[]` is a type, too
            text: kind
            for text, kind in Postgres.Tokenizer.KEYWORDS.items()
            if kind is not TokenType.OBJECT_IDENTIFIER
        }


class _DuckDB(DuckDB):
    """DuckDB, with the order of NULLs that `execution` sets: that of PostgreSQL.

    The generator leaves out NULLS FIRST and NULLS LAST where they are the default.
    """

    NULL_ORDERING = "nulls_are_large"


_DIALECT: Final = _Postgres()
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, whose `start` and `end` are offsets in it.

    Raises:
        SqlError: a text or a comment does not end, or there are too many tokens.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise SqlError(
            STATEMENT_TOO_COMPLEX,
            f"the query has more than {MAX_TEXT_LENGTH} characters",
            hint="Send long lists as parameters, such as = ANY($1).",
        )
    try:
        tokens = _DIALECT.tokenize(_LEXEME.sub(_with_at_sign, text))
    except SqlglotError:
        raise SqlError(
            SYNTAX_ERROR,
            "unterminated quoted string, identifier or comment",
            position=len(text.rstrip()) or None,
        ) from None
    if len(tokens) > MAX_TOKENS:
        raise SqlError(
            STATEMENT_TOO_COMPLEX,
            f"the query has more than {MAX_TOKENS} tokens",
            hint="Send long lists as parameters, such as = ANY($1).",
        )
    tokens = [part for token in tokens for part in _without_operators(token, text)]
    for token in tokens:
        if token.token_type is TokenType.BYTE_STRING:
            # sqlglot decodes doubled backslashes only, so that they look like single ones.
            token.text = _unescape(text[token.start + 2 : token.end])
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > MAX_PARENTHESES:
                raise SqlError(
                    STATEMENT_TOO_COMPLEX,
                    f"the query is nested deeper than {MAX_PARENTHESES} levels",
                    position=token.start + 1,
                )
        elif token.token_type in _CLOSING:
            depth = max(0, depth - 1)
    return tokens


_LEXEME: Final = re.compile(
    r"[eE]'(?:[^'\\]|\\.|'')*'?|'[^']*'?|"
    r'"[^"]*"?|--[^\n]*|/\*(?:.*?\*/|.*)|'
    r"\$((?:[A-Za-z_]\w*)?)\$(?:.*?\$\1\$|.*)|[A-Za-z_][\w$]*|\$\d+",
    re.DOTALL,
)
"""Texts, names and comments, in which $ is no parameter; without an end, they are all the rest."""


def _with_at_sign(match: re.Match[str]) -> str:
    """Return a lexeme, with @ for the $ of parameters.

    sqlglot's tokenizer looks for a dollar-quoted text at `$1`, and reads on at the wrong place if
    two quotes follow anywhere. To its parser, `@1` is the same parameter.
    """
    lexeme = match[0]
    return f"@{lexeme[1:]}" if lexeme[0] == "$" and lexeme[1:].isdigit() else lexeme


_BEFORE_PARAMETERS: Final = {"<@": TokenType.LT, "^@": TokenType.CARET}
"""Operators without the @ of a parameter behind them, as in `a<$1`."""


_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))|''", re.DOTALL
)


def _unescape(text: str) -> str:
    """Return the value of a text with C-style escapes and doubled quotes: the `...` of E'...'."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "''":
            return "'"
        hexadecimal = match[1] or match[2] or match[3]
        if hexadecimal:
            return chr(min(int(hexadecimal, 16), 0x10FFFF))
        if match[4]:
            return chr(int(match[4], 8) & 0xFF)
        return _ESCAPES.get(match[5], match[5])

    return _ESCAPE.sub(value, text)


def _without_operators(token: Token, text: str) -> list[Token]:
    """Return a token, or its two parts, of which the second one begins a parameter."""
    kind = _BEFORE_PARAMETERS.get(token.text)
    if kind is None or text[token.end] != "$":
        return [token]
    line, column = token.line, token.col
    return [
        Token(kind, token.text[0], line, column - 1, token.start, token.start, token.comments),
        Token(TokenType.PARAMETER, "@", line, column, token.end, token.end),
    ]


def parse_query(tokens: list[Token], text: str) -> exp.Expr:
    """Return the tree of the tokens of one statement.

    Raises:
        SqlError: the tokens are no statement.
    """
    try:
        parser = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = parser.parse(complete_as_of(tokens), text)
    except ParseError as error:
        raise _syntax_error(error, tokens, text) from None
    except RecursionError:
        raise too_complex() from None
    except SqlglotError:
        raise SqlError(SYNTAX_ERROR, "syntax error", position=tokens[0].start + 1) from None
    tree = trees[0] if trees else None
    if tree is None or len(trees) != 1:
        raise SqlError(SYNTAX_ERROR, "syntax error", position=tokens[0].start + 1)
    return tree


def to_duckdb(tree: exp.Expr) -> str:
    """Return the text of a tree in DuckDB's dialect.

    Raises:
        SqlError: the tree is too deep.
    """
    try:
        return tree.sql(dialect=_DuckDB, comments=False, unsupported_level=ErrorLevel.IGNORE)
    except RecursionError:
        raise too_complex() from None


def too_complex() -> SqlError:
    """Return the error for a query that is nested too deeply."""
    return SqlError(
        STATEMENT_TOO_COMPLEX,
        "the query is nested too deeply",
        hint="Send long lists as parameters, such as = ANY($1).",
    )


def _syntax_error(error: ParseError, tokens: list[Token], text: str) -> SqlError:
    detail = error.errors[0] if error.errors else {}
    line, column = detail.get("line"), detail.get("col")
    for token in tokens:
        if token.line == line and token.col == column:
            return syntax_error_at(token, text)
    return SqlError(SYNTAX_ERROR, "syntax error at end of input", position=len(text.rstrip()) + 1)


def syntax_error_at(token: Token | None, text: str) -> SqlError:
    """Return the error for a token that is not expected; None for the end of the text."""
    if token is None:
        position = len(text.rstrip()) + 1
        return SqlError(SYNTAX_ERROR, "syntax error at end of input", position=position)
    found = text[token.start : token.end + 1]
    return SqlError(
        SYNTAX_ERROR,
        f'syntax error at or near "{found[:100]}"',
        position=token.start + 1,
    )
