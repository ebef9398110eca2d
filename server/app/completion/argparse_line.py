"""Derives the description of a command line from its argparse parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from server.app.completion.lines import Argument, Kind, Line, Option, Value

Kinds = Mapping[Callable[[str], object], Kind]
"""The kind of the words that a function parses; argparse has the function as their type."""


def line_of(parser: argparse.ArgumentParser, kinds: Kinds) -> Line:
    """Return the description of a command line.

    Args:
        parser: the parser of the command line.
        kinds: the kinds of words that have no list of choices.
    """
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS]  # noqa: SLF001 - there is no other way
    return Line(
        help=" ".join((parser.description or "").split()),
        options=tuple(_option(one, kinds) for one in actions if one.option_strings),
        arguments=tuple(
            _argument(one, kinds)
            for one in actions
            if not one.option_strings and not isinstance(one, argparse._SubParsersAction)  # noqa: SLF001 - argparse names it nowhere else
        ),
        commands=dict(_commands(actions, kinds)),
    )


def _commands(actions: list[argparse.Action], kinds: Kinds) -> Iterator[tuple[str, Line]]:
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse names it nowhere else
            for name, parser in action.choices.items():
                yield name, line_of(parser, kinds)


def _option(action: argparse.Action, kinds: Kinds) -> Option:
    names = tuple(action.option_strings)
    text = " ".join((action.help or "").split())
    repeatable = isinstance(action, argparse._AppendAction)  # noqa: SLF001 - argparse names it nowhere else
    value = None if action.nargs == 0 else _value(action, kinds)
    return Option(names, text, value, repeatable)


def _argument(action: argparse.Action, kinds: Kinds) -> Argument:
    return Argument(
        _value(action, kinds),
        is_optional=action.nargs in ("?", "*"),
        is_repeatable=action.nargs in ("+", "*"),
    )


def _value(action: argparse.Action, kinds: Kinds) -> Value:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    kind = kinds.get(action.type, Kind.OTHER) if callable(action.type) else Kind.OTHER
    return Value(name, kind, tuple(map(str, action.choices or ())))
