"""Redacts secrets in all output of `amps-doctor`.

The configuration is masked as the admin interface masks it. The values masked there, and the
credentials given to the command, are then replaced in all other texts: a password may be in a
command line, or in the address of a service in a log entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from config_schema.configuration_text import secrets, shown
from config_schema.redaction import HIDDEN

_MIN_SECRET_LENGTH: Final = 4
"""Minimum length of a secret that is searched for: shorter ones are parts of many words."""

_DEFINITION: Final = re.compile(
    r"""('-D\s*\w+=|-D\s*'\w+=)(?:[^']|'"'"')*"""
    r"""|(-D\s*\w+=)(?:'[^']*'|"[^"]*"|[^\s'"]+)+"""
)
"""A variable set in a command line, as the log has it: with quotation marks around all of it, or
around its value.
"""


class SecretRedactor:
    """Collects secrets and redacts them in texts."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def add_configuration(self, configuration: str) -> None:
        """Add the secrets of a configuration."""
        self.add(secrets(configuration))

    def add(self, values: Iterable[str]) -> None:
        """Add secret values."""
        self._secrets.update(
            value for value in values if len(value) >= _MIN_SECRET_LENGTH and value != HIDDEN
        )

    def redact(self, text: str) -> str:
        """Redact the secrets in a text of any kind."""
        text = _DEFINITION.sub(lambda match: f"{match[1] or match[2]}{HIDDEN}", shown(text))
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def redact_document(self, value: object) -> object:
        """Redact the secrets in all texts of a JSON document."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {name: self.redact_document(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_document(item) for item in value]
        return value
