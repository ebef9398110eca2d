"""Prints trees as text that parses to the same tree."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from server.expressions.grammar import (
    AND,
    ARITHMETIC,
    COMPARISONS,
    NOT,
    OR,
    POSTFIX,
    PRIMARY,
    SUM,
    UNARY,
)
from server.expressions.tokens import plain
from server.expressions.tree import (
    Affix,
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Constant,
    Expr,
    Field,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Pattern,
)
from server.message_types.paths import Path
from server.util.encoding import text_to_bytes

_MAX_KEPT_LENGTH: Final = 64
"""Maximum length of a name whose text is cached, in characters: the same fields recur often."""

_NEGATABLE: Final = (Between, In, Like, Affix, IsNull, IsNan)


def to_text(expr: Expr) -> str:
    """Write an expression in its canonical form, with as few parentheses as it needs."""
    return _print(expr)[0]


def field_to_text(field: Field) -> str:
    """Write a constructed field."""
    hints = [
        hint
        for hint, is_given in (("OPTIONAL", field.is_optional), ("SET_CURRENT", field.set_current))
        if is_given
    ]
    hint = f" HINT {','.join(hints)}" if hints else ""
    return f"{to_text(field.source)} AS {path_to_text(field.destination)}{hint}"


def path_to_text(path: Path) -> str:
    """Write a path, in brackets where a name has characters that would end it."""
    return "".join(_print_step(step) for step in path)


def _print_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return _print_name(step) if len(step) <= _MAX_KEPT_LENGTH else _print_any_name(step)


def _print_any_name(step: str) -> str:
    return f"/{step}" if plain(step) else f"[/{step}]"


_print_name: Final = lru_cache(maxsize=1024)(_print_any_name)


def _print(expr: Expr) -> tuple[str, int]:
    """Return the text of a node, and the binding power of its outermost operator."""
    match expr:
        case Literal(value):
            return _print_literal(value)
        case Identifier():
            return _print_identifier(expr), PRIMARY
        case Negate(operand):
            # Without the parentheses a minus before a number would be read as part of the number.
            return f"-{_operand(operand, PRIMARY)}", UNARY
        case Arithmetic(operator, left, right):
            power = ARITHMETIC[operator][1]
            return f"{_operand(left, power)} {operator} {_operand(right, power + 1)}", power
        case Comparison(operator, left, right):
            power = COMPARISONS[operator][1]
            return f"{_operand(left, power)} {operator} {_operand(right, power + 1)}", power
        case And(operands):
            return " AND ".join(_operand(operand, AND + 1) for operand in operands), AND
        case Or(operands):
            return " OR ".join(_operand(operand, OR + 1) for operand in operands), OR
        case Not(operand) if isinstance(operand, _NEGATABLE):
            return _print_test(operand, "NOT "), POSTFIX
        case Not(operand):
            return f"NOT {_operand(operand, NOT)}", NOT
        case Call(name, arguments) | Aggregate(name, arguments):
            return f"{name}({_list(arguments)})", PRIMARY
        case Pattern(text, quoted):
            return _print_raw(text) if quoted else _print_pattern(text), PRIMARY
        case _:
            return _print_test(expr, ""), POSTFIX


def _print_test(expr: Expr, negation: str) -> str:
    match expr:
        case Between(operand, low, high):
            bounds = f"{_operand(low, SUM)} AND {_operand(high, SUM)}"
            return f"{_operand(operand, POSTFIX)} {negation}BETWEEN {bounds}"
        case In(operand, items):
            return f"{_operand(operand, POSTFIX)} {negation}IN ({_list(items)})"
        case Like(operand, pattern):
            return f"{_operand(operand, POSTFIX)} {negation}LIKE {_print(pattern)[0]}"
        case Affix(operator, operand, items):
            return f"{_operand(operand, POSTFIX)} {negation}{operator} ({_list(items)})"
        case IsNull(operand):
            return f"{_operand(operand, POSTFIX)} IS {negation}NULL"
        case IsNan(operand):
            return f"{_operand(operand, POSTFIX)} IS {negation}NAN"
    raise AssertionError(f"no text for {expr!r}")


def _operand(expr: Expr, power: int) -> str:
    """Return the text of an operand, in parentheses if it binds less tightly than required."""
    text, own_power = _print(expr)
    return text if own_power >= power else f"({text})"


def _list(items: tuple[Expr, ...]) -> str:
    return ", ".join(to_text(item) for item in items)


def _print_literal(value: Constant) -> tuple[str, int]:
    if value is None:
        return "NULL", PRIMARY
    if isinstance(value, str):
        return _print_string(value), PRIMARY
    text = repr(value)
    return text, UNARY if text.startswith("-") else PRIMARY


def _print_identifier(identifier: Identifier) -> str:
    qualifiers = "".join(
        f"[{part}]." for part in (identifier.message_type, identifier.topic) if part is not None
    )
    state = f" OF {identifier.state.upper()}" if identifier.state else ""
    return f"{qualifiers}{path_to_text(identifier.path)}{state}"


def _print_string(value: str) -> str:
    if value.isprintable() and "'" not in value and "\\" not in value:
        return f"'{value}'"
    out = []
    for character in value:
        if character in "'\\":
            out.append("\\" + character)
        elif character.isprintable():
            out.append(character)
        else:
            out.extend(f"\\x{byte:02x}" for byte in text_to_bytes(character))
    return f"'{''.join(out)}'"


def _print_pattern(text: str) -> str:
    escaped = re.sub(r"\\.|'", lambda m: r"\'" if m[0] == "'" else m[0], text, flags=re.DOTALL)
    return f"'{escaped}'"


def _print_raw(text: str) -> str:
    quote = '"' if "'" in text else "'"
    return f"r{quote}{text}{quote}"
