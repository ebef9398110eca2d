"""Derives the description of a command line from its argparse parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from server.app.completion.lines import (
    CompletionArgument,
    CompletionLine,
    CompletionOption,
    CompletionValue,
    WordKind,
)

WordKinds = Mapping[Callable[[str], object], WordKind]
"""The kind of the words that a function parses; argparse has the function as their type."""


def line_of(parser: argparse.ArgumentParser, kinds: WordKinds) -> CompletionLine:
    """Return the description of a command line.

    Args:
        parser: the parser of the command line.
        kinds: the kinds of words that have no list of choices.
    """
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001 - there is no other way
    return CompletionLine(
        help=" ".join((parser.description or "").split()),
        options=tuple(_option(action, kinds) for action in actions if action.option_strings),
        arguments=tuple(
            _argument(action, kinds)
            for action in actions
            if not action.option_strings and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - argparse names it nowhere else
        ),
        commands=dict(_commands(actions, kinds)),
    )


def _commands(
    actions: list[argparse.Action], kinds: WordKinds
) -> Iterator[tuple[str, CompletionLine]]:
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse names it nowhere else
            for name, parser in action.choices.items():
                yield name, line_of(parser, kinds)


def _option(action: argparse.Action, kinds: WordKinds) -> CompletionOption:
    names = tuple(action.option_strings)
    text = " ".join((action.help or "").split())
    repeatable = isinstance(action, argparse._AppendAction)  # noqa: SLF001 - argparse names it nowhere else
    value = None if action.nargs == 0 else _value(action, kinds)
    return CompletionOption(names, text, value, repeatable)


def _argument(action: argparse.Action, kinds: WordKinds) -> CompletionArgument:
    return CompletionArgument(
        _value(action, kinds),
        is_optional=action.nargs in ("?", "*"),
        is_repeatable=action.nargs in ("+", "*"),
    )


def _value(action: argparse.Action, kinds: WordKinds) -> CompletionValue:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    kind = kinds.get(action.type, WordKind.OTHER) if callable(action.type) else WordKind.OTHER
    return CompletionValue(name, kind, tuple(map(str, action.choices or ())))
