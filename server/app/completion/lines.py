"""Descriptions of command lines, as far as the completion of shells needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class WordKind(Enum):
    """The kind of a word."""

    OTHER = "other"
    FILE = "file"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class CompletionValue:
    """A word that is not fixed.

    Attributes:
        name: its name in the help.
        kind: its kind.
        words: the possible words; empty if any word is accepted.
    """

    name: str
    kind: WordKind = WordKind.OTHER
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionOption:
    """An option.

    Attributes:
        names: its names, with their dashes.
        help: its purpose, in one line.
        value: its value; None for a switch.
        is_repeatable: it can be given several times.
    """

    names: tuple[str, ...]
    help: str
    value: CompletionValue | None = None
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class CompletionArgument:
    """A positional argument.

    Attributes:
        value: its value.
        is_optional: it can be left out.
        is_repeatable: several can be given.
    """

    value: CompletionValue
    is_optional: bool = False
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """A command line after the name of its command.

    Attributes:
        help: the purpose of the command, in one line.
        options: its options, which can be given in any position.
        arguments: its positional arguments, in order.
        commands: its subcommands, which the first argument names, each with its own command line.
    """

    help: str = ""
    options: tuple[CompletionOption, ...] = ()
    arguments: tuple[CompletionArgument, ...] = ()
    commands: Mapping[str, CompletionLine] = field(default_factory=dict)


def function_name(command: str) -> str:
    """Return the name of the function that completes a command, the same in all shells."""
    return f"_{command.replace('-', '_')}"


def quoted(text: str) -> str:
    """Return a text in single quotes, escaped for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"
