"""What nobody is to see, removed from all that leaves `amps-doctor`.

The configuration is masked as the admin interface masks it. What was masked there, and the
credentials that the command was given, are then looked for in all other texts: a password may be in
a command line, or in the address of a service that the log complains about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from config_schema.configuration_text import secrets, shown
from config_schema.secrecy import HIDDEN

_SHORTEST: Final = 4
"""Characters of a secret that is looked for: shorter ones are parts of many words."""

_DEFINITION: Final = re.compile(
    r"""('-D\s*\w+=|-D\s*'\w+=)(?:[^']|'"'"')*"""
    r"""|(-D\s*\w+=)(?:'[^']*'|"[^"]*"|[^\s'"]+)+"""
)
"""A variable that is set in a command line, as the log has it: with quotation marks around all of
it, or around its value."""


class Secrets:
    """Knows what is secret."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, configuration: str) -> None:
        """Remember what a configuration keeps secret."""
        self.add(secrets(configuration))

    def add(self, values: Iterable[str]) -> None:
        """Remember values that are secret."""
        self._known.update(one for one in values if len(one) >= _SHORTEST and one != HIDDEN)

    def hide(self, text: str) -> str:
        """Replace what is secret in a text of any kind."""
        text = _DEFINITION.sub(lambda match: f"{match[1] or match[2]}{HIDDEN}", shown(text))
        for one in sorted(self._known, key=len, reverse=True):
            text = text.replace(one, HIDDEN)
        return text

    def hide_in(self, value: object) -> object:
        """Replace what is secret in all texts of a JSON document."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {name: self.hide_in(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_in(one) for one in value]
        return value
