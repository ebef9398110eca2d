"""Errors in a key generator's configuration."""

from __future__ import annotations


class KeyModuleError(ValueError):
    """A key generator cannot be created from its configuration.

    Attributes:
        option: the option at fault, or None for the module as a whole.
        message: the error, and the expected value.
    """

    def __init__(self, option: str | None, message: str) -> None:
        super().__init__(message if option is None else f"{option}: {message}")
        self.option = option
        self.message = message
