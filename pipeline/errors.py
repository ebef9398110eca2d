"""Errors of the pipeline, which name the option at fault.

The name of an error's class tells the kind of the fault. Spark shows it with the text, as it hands
the errors of its Python processes over as texts.
"""

from __future__ import annotations

from typing import Final

_OF_TABLES: Final = frozenset(
    {"provider", "owner", "comment", "collation", "external", "is_managed_location", "location"}
)
"""Properties of a table that Spark adds to the options of its source."""

_REPEATED: Final = "option."
"""The prefix under which Spark repeats the options of a table."""

INSTEAD_OF_TABLES: Final = (
    "in SQL, use CREATE TEMPORARY VIEW name USING format OPTIONS (...), or SELECT ... FROM name"
    " WITH (...)"
)


class PipelineError(Exception):
    """A failed read or write; the text names the option at fault and the reason."""


class OptionError(PipelineError):
    """An option is unknown, missing, or has a value that cannot be used."""


class SchemaError(PipelineError):
    """The columns cannot be read from messages, or rows cannot be published."""


class ServerUnreachableError(PipelineError):
    """The server cannot be reached, or the connection was lost."""


class NotPermittedError(PipelineError):
    """The server refuses the user, or a request that the user has no permission for."""


class DataLossError(PipelineError):
    """The log does not have all messages that a stream has to read."""


class JournalDamageError(PipelineError):
    """A journal file is damaged, truncated or missing."""


class UnfitError(SchemaError):
    """A message that does not fit the schema.

    Args:
        text: the problem.
        number: its index among the messages to be read.
    """

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


def is_asked(name: str) -> bool:
    """Return whether an option comes from the user, and not from Spark's table properties.

    Args:
        name: the name in lower case.
    """
    return name not in _OF_TABLES and not name.startswith(_REPEATED)


def option_error(
    option: str, value: object, problem: str, kind: type[PipelineError] = OptionError
) -> PipelineError:
    """Return the error for an option.

    Args:
        option: the name.
        value: the given value.
        problem: the reason why it is not valid.
        kind: the class of the error.
    """
    return kind(f"option {option}={str(value)!r}: {problem}")
