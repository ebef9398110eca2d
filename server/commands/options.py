"""The options of a command: a comma separated list of flags and name=value pairs.

A value in square brackets may have commas of its own: `replace,select=[-/,+/id]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from server.commands.refusal import CommandRefused
from server.wire.header import Header

_OPTION: Final = re.compile(
    r"\s*(?P<name>[^,=\[\]]+?)\s*(?:=\s*(?P<value>\[[^\]]*\]|[^,]*))?(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """What a subscriber asked for besides topic and filter.

    Attributes:
        replace: take the place of the subscription with the same id.
        literal_topic: take the topic's name as it stands.
    """

    replace: bool
    literal_topic: bool


def read_options(header: Header) -> SubscribeOptions:
    """Read the options of a subscribe command.

    Raises:
        CommandRefused: an option is unknown or cannot be honoured.
    """
    options = split_options(header.options or "")
    for name in options:
        if name not in _KNOWN:
            raise CommandRefused(
                "invalid option", f"{name!r} is no option of {header.command} that is served here"
            )
    return SubscribeOptions(
        replace="replace" in options,
        literal_topic="non_regex_topic" in options,
    )


def split_options(text: str) -> Mapping[str, str]:
    """Split an option list into names and values; the value of a flag is empty.

    Raises:
        CommandRefused: the text is no list of options.
    """
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None:
            raise CommandRefused(
                "invalid option", f"expected an option at position {position} of {text!r}"
            )
        options[match["name"].lower()] = (match["value"] or "").strip()
        position = match.end()
    return options


# Flags that change nothing for topics without records are accepted, as a real server does.
_KNOWN: Final = frozenset({"none", "replace", "non_regex_topic", "no_sowkey", "no_empties"})
