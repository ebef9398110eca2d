"""The texts of log messages: templates with named fields, and the escaping of their values.

A template is plain text with `{field}` in place of a value. `{field:lead}` is an optional field:
the lead and the value, or nothing at all if the value is missing or empty.

Many values in a log come from clients, and a log is read by scripts and on terminals. So control
characters in a value are escaped (as `^A`), and also invisible characters that change the display
of others, such as those that change the direction of writing (`\\u202e`). And a line break in a
value is followed by a blank: no value can begin a line that looks like an entry of its own.
"""

import string
from collections.abc import Mapping
from typing import Final

UNKNOWN: Final = "?"
"""The placeholder for a field that the caller did not give."""

_END: Final = 100
"""Characters kept at the end of a value that is shortened."""

_INVISIBLE: Final = (
    range(0xAD, 0xAE),
    range(0x600, 0x606),
    range(0x61C, 0x61D),
    range(0x6DD, 0x6DE),
    range(0x70F, 0x710),
    range(0x890, 0x892),
    range(0x8E2, 0x8E3),
    range(0x180E, 0x180F),
    range(0x200B, 0x2010),
    range(0x2028, 0x202F),
    range(0x2060, 0x2070),
    range(0xFEFF, 0xFF00),
    range(0xFFF9, 0xFFFC),
    range(0x110BD, 0x110BE),
    range(0x110CD, 0x110CE),
    range(0x13430, 0x13440),
    range(0x1BCA0, 0x1BCA4),
    range(0x1D173, 0x1D17B),
    range(0xE0000, 0xE0080),
)
"""Unicode's format characters (Cf), and separators of lines and paragraphs."""

_UNPRINTABLE: Final = (
    {code: f"^{chr(code ^ 0x40)}" for code in (*range(0x20), 0x7F)}
    | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
    | {code: f"\\x{code - 0xDC00:02x}" for code in range(0xDC80, 0xDD00)}  # surrogateescape
    | {
        code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        for codes in _INVISIBLE
        for code in codes
    }
    | {ord("\t"): "\t", ord("\n"): "\n "}
)

_UNRENDERABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that the `__str__` of a value may raise: the entry then shows the value's type."""


def printable(value: object, max_length: int | None = None) -> str:
    """Return the text of a value in the log; None is empty, bytes are decoded as UTF-8.

    Args:
        value: the value.
        max_length: maximum characters, above which the middle is left out; None for no limit.
    """
    if type(value) is str:  # the most frequent type
        text = value
    elif value is None:
        return ""
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
    else:
        try:
            text = str(value)
        except _UNRENDERABLE:
            return f"<{type(value).__name__}>"
    if max_length is not None and len(text) > max_length:
        omitted = len(text) - max_length
        text = f"{text[: max_length - _END]}... {omitted} characters more ...{text[-_END:]}"
    return text if text.isprintable() else text.translate(_UNPRINTABLE)


class MessageTemplate:
    """A message's text, parsed once.

    Attributes:
        text: the template as written.
        required: the fields that a caller must give.
        optional: the fields with a lead, which may be missing.
    """

    __slots__ = ("_parts", "_tail", "optional", "required", "text")

    def __init__(self, text: str) -> None:
        """Parse `text`.

        Raises:
            ValueError: the braces do not match, or a field is more than a plain name.
        """
        parts: list[tuple[str, str, str]] = []
        before = ""  # the literal text since the last field; a doubled brace ends a piece of it
        for literal, field, lead, conversion in string.Formatter().parse(text):
            before += literal
            if field is None:
                continue
            if not field.isidentifier() or conversion:
                raise ValueError(f"the field {{{field}}} is not a plain name")
            parts.append((before, field, lead or ""))
            before = ""
        self.text = text
        self._parts = tuple(parts)
        self._tail = before
        self.required = frozenset(field for _, field, lead in parts if not lead)
        self.optional = frozenset(field for _, field, lead in parts if lead)

    def render(self, fields: Mapping[str, object], max_length: int | None = None) -> str:
        """Return the text with its values; a required field that is missing is shown as `?`.

        Args:
            fields: the values.
            max_length: see `printable`.
        """
        pieces: list[str] = []
        for literal, field, lead in self._parts:
            pieces.append(literal)
            if field in fields:
                value = printable(fields[field], max_length)
                if value and lead:
                    pieces.append(lead)
                pieces.append(value)
            elif not lead:
                pieces.append(UNKNOWN)
        pieces.append(self._tail)
        return "".join(pieces)
