"""Every message that the log can hold, read from catalogue.toml.

One table feeds the log, the `ampserr` command and docs/messages.md. Adding a message is adding its
entry there.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from server.events.levels import Level, parse_level
from server.events.template import Template

NO_ACTION: Final = "No action is needed."

_ID: Final = re.compile(r"([0-9A-F]{2})-[0-9]{4}")
_KEYS: Final = frozenset({"level", "text", "meaning", "action", "whole"})


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the catalogue.

    Attributes:
        id: category and number, "00-0015".
        level: the level that it is always logged at.
        level_label: the same as it is written.
        template: its text with named fields.
        meaning: what has happened, in a sentence or two.
        action: what the reader should do about it.
        is_whole: whether its values are written in full, however long they are.
    """

    id: str
    level: Level
    level_label: str
    template: Template
    meaning: str
    action: str
    is_whole: bool

    @property
    def category(self) -> str:
        """The part of the server that it is about: a key of `CATEGORIES`."""
        return self.id[:2]


def matching(pattern: str) -> tuple[Message, ...]:
    """The messages whose id a regular expression finds, in the order of their ids.

    Like all regular expressions of a configuration it may match anywhere in the id unless it is
    anchored, so `12-` is a whole category. Case does not matter.

    Raises:
        re.error: `pattern` is not a regular expression.
    """
    search = re.compile(pattern, re.IGNORECASE).search
    return tuple(message for message in CATALOGUE.values() if search(message.id))


def _read() -> tuple[Mapping[str, str], Mapping[str, Message]]:
    source = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    tables = tomllib.loads(source)
    categories: dict[str, str] = tables.pop("categories")
    messages = {key: _message(key, tables[key], categories) for key in sorted(tables)}
    return MappingProxyType(categories), MappingProxyType(messages)


def _message(key: str, entry: dict[str, Any], categories: Mapping[str, str]) -> Message:
    """Check one entry; a mistake in it is ours, so it stops the program when it is imported."""
    form = _ID.fullmatch(key)
    if form is None or form[1] not in categories:
        raise ValueError(f"catalogue.toml: {key} is not an id of a known category")
    if not entry.keys() <= _KEYS:
        raise ValueError(f"catalogue.toml: {key} has unknown keys {sorted(entry.keys() - _KEYS)}")
    try:
        level = parse_level(entry["level"])
        return Message(
            id=key,
            level=level,
            level_label=level.label,
            template=Template(entry["text"]),
            meaning=" ".join(entry["meaning"].split()),
            action=" ".join(entry.get("action", NO_ACTION).split()),
            is_whole=entry.get("whole", level is Level.TRACE),
        )
    except (KeyError, ValueError) as problem:
        raise ValueError(f"catalogue.toml: {key}: {problem}") from problem


CATEGORIES, CATALOGUE = _read()
