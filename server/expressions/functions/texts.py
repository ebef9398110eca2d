"""Functions of texts.

They work on bytes: positions and lengths count bytes, only ASCII letters have a case.
"""

from __future__ import annotations

from typing import Final

from server.expressions import semantics
from server.expressions.concat import MAX_TEXT_LENGTH, joined
from server.expressions.functions.registry import Function, Parameter
from server.expressions.regex.patterns import Regex
from server.message_types.base import Value
from server.util.encoding import bytes_to_text

_TEXT, _ANY, _INTEGER, _PATTERN = (
    Parameter.TEXT,
    Parameter.ANY,
    Parameter.INTEGER,
    Parameter.PATTERN,
)


def _instr(whole: bytes, part: bytes) -> int:
    return whole.find(part) + 1


def _concat(*values: Value) -> str | None:
    return joined([semantics.text(value) or "" for value in values])


def _substr(whole: bytes, start: int, length: int | None = None) -> str:
    begin = start - 1 if start > 0 else len(whole) + start if start < 0 else 0
    begin = max(begin, 0)
    end = len(whole) if length is None else begin + max(length, 0)
    return bytes_to_text(whole[begin:end])


def _left(whole: bytes, count: int) -> str:
    return bytes_to_text(whole[: max(count, 0)])


def _right(whole: bytes, count: int) -> str:
    return bytes_to_text(whole[max(len(whole) - max(count, 0), 0) :])


def _replace(whole: bytes, part: bytes, replacement: Value) -> str | None:
    new = semantics.octets(replacement) or b""
    if len(whole) + whole.count(part) * len(new) > MAX_TEXT_LENGTH:
        return None
    return bytes_to_text(whole.replace(part, new))


def _regexp_replace(whole: Value, pattern: Regex, replacement: Value) -> str | None:
    text = semantics.text(whole)
    return None if text is None else pattern.replace(text, semantics.octets(replacement) or b"")


def _regexp_match(whole: Value, pattern: Regex) -> str | None:
    text = semantics.text(whole)
    return None if text is None else pattern.first_match(text)


def _char_value(code: int) -> str:
    return bytes_to_text(bytes((code,))) if 0 <= code <= 255 else "?"


_COMPARING = "Comparing texts"
_BUILDING = "Building and changing texts"

FUNCTIONS: Final = (
    Function(
        "INSTR",
        _COMPARING,
        "Where the second text begins within the first, from 1; 0 if it does not occur.",
        _instr,
        (_TEXT, _TEXT),
    ),
    Function(
        "INSTR_I",
        _COMPARING,
        "INSTR, taking capital and small letters as the same.",
        lambda whole, part: _instr(whole.lower(), part.lower()),
        (_TEXT, _TEXT),
    ),
    Function(
        "STREQUAL",
        _COMPARING,
        "Whether two texts are the same.",
        lambda left, right: left == right,
        (_TEXT, _TEXT),
    ),
    Function(
        "STREQUAL_I",
        _COMPARING,
        "Whether two texts are the same but for capital and small letters.",
        lambda left, right: left.lower() == right.lower(),
        (_TEXT, _TEXT),
    ),
    Function(
        "CONCAT",
        _BUILDING,
        "All arguments as one text; NULL adds nothing.",
        _concat,
        variadic=_ANY,
    ),
    Function(
        "UPPER",
        _BUILDING,
        "The text in capital letters.",
        lambda whole: bytes_to_text(whole.upper()),
        (_TEXT,),
    ),
    Function(
        "LOWER",
        _BUILDING,
        "The text in small letters.",
        lambda whole: bytes_to_text(whole.lower()),
        (_TEXT,),
    ),
    Function(
        "REPLACE",
        _BUILDING,
        "The first text with the second replaced by the third wherever it occurs; NULL removes it.",
        _replace,
        (_TEXT, _TEXT, _ANY),
    ),
    Function(
        "REGEXP_REPLACE",
        _BUILDING,
        "The text with the third argument, taken literally, wherever the pattern matches.",
        _regexp_replace,
        (_ANY, _PATTERN, _ANY),
    ),
    Function(
        "REGEXP_MATCH",
        _BUILDING,
        "The first part of the text that the pattern matches, NULL if there is none.",
        _regexp_match,
        (_ANY, _PATTERN),
    ),
    Function(
        "SUBSTR",
        _BUILDING,
        "The text from a position on, from 1, at most as long as the third argument; "
        "a negative position counts from the end.",
        _substr,
        (_TEXT, _INTEGER),
        (_INTEGER,),
    ),
    Function(
        "REVERSE",
        _BUILDING,
        "The text with its bytes in reverse order.",
        lambda whole: bytes_to_text(whole[::-1]),
        (_TEXT,),
    ),
    Function("LEFT", _BUILDING, "The first bytes of the text.", _left, (_TEXT, _INTEGER)),
    Function("RIGHT", _BUILDING, "The last bytes of the text.", _right, (_TEXT, _INTEGER)),
    Function(
        "TRIM",
        _BUILDING,
        "The text without white space at its ends.",
        lambda whole: bytes_to_text(whole.strip()),
        (_TEXT,),
    ),
    Function(
        "LTRIM",
        _BUILDING,
        "The text without white space at its beginning.",
        lambda whole: bytes_to_text(whole.lstrip()),
        (_TEXT,),
    ),
    Function(
        "RTRIM",
        _BUILDING,
        "The text without white space at its end.",
        lambda whole: bytes_to_text(whole.rstrip()),
        (_TEXT,),
    ),
    Function("LENGTH", _BUILDING, "How many bytes the text has.", len, (_TEXT,)),
    Function("TRUE_VALUE", "Typed values", "The Boolean true, equal to 1.", lambda: True),
    Function("FALSE_VALUE", "Typed values", "The Boolean false, equal to 0.", lambda: False),
    Function("NAN_VALUE", "Typed values", "The value that is not a number.", lambda: semantics.NAN),
    Function(
        "CHAR_VALUE",
        "Typed values",
        "The text of one byte with the code given, `?` if there is no such byte.",
        _char_value,
        (_INTEGER,),
    ),
)
"""AMPS User Guide: String Comparison Functions, Concatenating Strings, Managing String Case,
Replacing Text in Strings, Extracting Matching Text in Strings, String Manipulation Functions, Typed
Value Creation. The reference names STREQUAL, LEFT, RIGHT, TRIM, LTRIM, RTRIM and LENGTH without a
description; they work as the functions of the same names in SQL do."""
