"""What a command line takes, as far as shells have to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What a word can be."""

    OTHER = "other"
    FILE = "file"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Value:
    """A word that is not fixed.

    Attributes:
        name: what help calls it.
        kind: what it is.
        words: which there are; empty if any will do.
    """

    name: str
    kind: Kind = Kind.OTHER
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        names: with their dashes.
        help: what it does, in one line.
        value: what follows it; None for a switch.
        is_repeatable: it can be given several times.
    """

    names: tuple[str, ...]
    help: str
    value: Value | None = None
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """A word that has its place.

    Attributes:
        value: what it is.
        is_optional: it can be left out.
        is_repeatable: there can be several.
    """

    value: Value
    is_optional: bool = False
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A command line, behind the name of its command.

    Attributes:
        help: what the command does, in one line.
        options: where they stand does not matter.
        arguments: in their order.
        commands: what the first argument can be, with what follows each.
    """

    help: str = ""
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()
    commands: Mapping[str, Line] = field(default_factory=dict)


def function_name(command: str) -> str:
    """The name of the function that completes a command: the same in all shells."""
    return f"_{command.replace('-', '_')}"


def quoted(text: str) -> str:
    """A text in single quotes, as bash and zsh read it."""
    return "'" + text.replace("'", "'\\''") + "'"
