"""Paths as text: `/a/b[2]/@c` and the bracketed form `[/Name with spaces]`.

A path is an AMPS identifier without its topic (AMPS User Guide, Identifiers; Working With Arrays):

    path      = step { step }
    step      = "/" name [subscript]  |  "[" "/" any-name { "/" any-name } "]" [subscript]
    subscript = "[" digits "]"

A plain name contains no white space, `/`, `[` or `]`; a bracketed one no `/` or `]`. Clients send
paths too, so their length is bounded: code that traverses a path may recurse.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Steps from the root of a body to a value: names, `@names` (XML attributes), array subscripts."""

MAX_STEPS = 128
"""Maximum number of steps of a path."""

_PLAIN_STEP = re.compile(r"/([^\s/\[\]]+)")
_BRACKETED = re.compile(r"\[((?:/[^/\]]+)+)\]")
_SUBSCRIPT = re.compile(r"\[([0-9]{1,9})\]")


class PathError(ValueError):
    """A text is not a path.

    Attributes:
        message: the error and the expected input.
        position: offset of the error in the text.
    """

    def __init__(self, text: str, position: int, message: str) -> None:
        super().__init__(f"{message} at position {position} of {text!r}")
        self.message = message
        self.position = position


def parse_path(text: str) -> Path:
    """Parse a path, for example `parse_path("/a/b[2]/@c") == ("a", "b", 2, "@c")`.

    Raises:
        PathError: the text is not a path.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        if match := _PLAIN_STEP.match(text, position):
            steps.append(match[1])
        elif match := _BRACKETED.match(text, position):
            steps.extend(match[1][1:].split("/"))
        elif steps and (match := _SUBSCRIPT.match(text, position)):
            steps.append(int(match[1]))
        else:
            raise PathError(text, position, _expected(text, position, after_step=bool(steps)))
        position = match.end()
    if not steps:
        raise PathError(text, 0, "expected a path such as /name")
    if len(steps) > MAX_STEPS:
        raise PathError(text, 0, f"expected at most {MAX_STEPS} steps, not {len(steps)}")
    return tuple(steps)


def _expected(text: str, position: int, *, after_step: bool) -> str:
    """Return the error message for a text that is invalid at `position`."""
    remainder = text[position:]
    if remainder.startswith("/"):
        return "expected a name after '/'"
    if remainder.startswith("[/"):
        return "expected names and a closing ']' after '[/'"
    if remainder.startswith("[") and after_step:
        return "expected a subscript such as [0]"
    if remainder[0].isspace() and after_step:
        return "expected no space (write [/two words] for a name with spaces)"
    return "expected '/' and a name"


def overlap(one: Path, other: Path) -> bool:
    """Return whether two paths are the same, or one of them is within the other."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def format_path(path: Path) -> str:
    """Format a path so that `parse_path` returns it.

    Raises:
        ValueError: a name is empty or contains `/` or `]`, which no text can express.
    """
    return "".join(_format_step(step) for step in path)


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_STEP.fullmatch(f"/{step}"):
        return f"/{step}"
    if step and not {"/", "]"} & set(step):
        return f"[/{step}]"
    raise ValueError(f"the field name {step!r} cannot be written as a path")
