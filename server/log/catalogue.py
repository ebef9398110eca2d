"""All messages of the log, read from catalogue.toml.

One table feeds the log, the `ampserr` command and docs/messages.md. To add a message, add its entry
there.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from server.log.levels import Level, parse_level
from server.log.template import MessageTemplate

NO_ACTION: Final = "No action is needed."

_ID: Final = re.compile(r"([0-9A-F]{2})-[0-9]{4}")
_KEYS: Final = frozenset({"level", "text", "meaning", "action", "whole"})


@dataclass(frozen=True, slots=True)
class CatalogueMessage:
    """One entry of the catalogue.

    Attributes:
        id: category and number, "00-0015".
        level: the level that it is always logged at.
        level_label: the name of the level as written in the log.
        template: its text with named fields.
        meaning: the event, in a sentence or two.
        action: the recommended action of the operator.
        is_untruncated: whether its values are written in full, regardless of their length.
    """

    id: str
    level: Level
    level_label: str
    template: MessageTemplate
    meaning: str
    action: str
    is_untruncated: bool

    @property
    def category(self) -> str:
        """The part of the server that logs it: a key of `CATEGORIES`."""
        return self.id[:2]


def matching(pattern: str) -> tuple[CatalogueMessage, ...]:
    """Return the messages with ids that a regular expression matches, in the order of their ids.

    As with all regular expressions of a configuration, the match may be anywhere in the id unless
    it is anchored, so `12-` is a whole category. Case is ignored.

    Raises:
        re.error: `pattern` is not a regular expression.
    """
    search = re.compile(pattern, re.IGNORECASE).search
    return tuple(message for message in CATALOGUE.values() if search(message.id))


def summary_of(identity: str) -> str:
    """Return the first sentence of a message's meaning; nothing for an unknown message."""
    message = CATALOGUE.get(identity)
    return "" if message is None else message.meaning.partition(". ")[0]


def _read() -> tuple[Mapping[str, str], Mapping[str, CatalogueMessage]]:
    source = resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8")
    tables = tomllib.loads(source)
    categories: dict[str, str] = tables.pop("categories")
    messages = {key: _message(key, tables[key], categories) for key in sorted(tables)}
    return MappingProxyType(categories), MappingProxyType(messages)


def _message(key: str, entry: dict[str, Any], categories: Mapping[str, str]) -> CatalogueMessage:
    """Check one entry; a mistake in it is a bug, so it stops the program at import."""
    form = _ID.fullmatch(key)
    if form is None or form[1] not in categories:
        raise ValueError(f"catalogue.toml: {key} is not an id of a known category")
    if not entry.keys() <= _KEYS:
        raise ValueError(f"catalogue.toml: {key} has unknown keys {sorted(entry.keys() - _KEYS)}")
    try:
        level = parse_level(entry["level"])
        return CatalogueMessage(
            id=key,
            level=level,
            level_label=level.label,
            template=MessageTemplate(entry["text"]),
            meaning=" ".join(entry["meaning"].split()),
            action=" ".join(entry.get("action", NO_ACTION).split()),
            is_untruncated=entry.get("whole", level is Level.TRACE),
        )
    except (KeyError, ValueError) as problem:
        raise ValueError(f"catalogue.toml: {key}: {problem}") from problem


CATEGORIES, CATALOGUE = _read()
