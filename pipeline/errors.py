"""What goes wrong in the pipeline, told by the option that is to blame."""

from __future__ import annotations

from typing import Final

_OF_TABLES: Final = frozenset(
    {"provider", "owner", "comment", "collation", "external", "is_managed_location", "location"}
)
"""What Spark says of a table, among the options of its source."""

_REPEATED: Final = "option."
"""What the names of a table's options begin with where Spark says them a second time."""

INSTEAD_OF_TABLES: Final = (
    "in SQL, use CREATE TEMPORARY VIEW name USING format OPTIONS (...), or SELECT ... FROM name"
    " WITH (...)"
)


class PipelineError(Exception):
    """A read or a write that cannot be done; the text says which option is to blame, and why."""


class UnfitError(PipelineError):
    """A message that does not fit the schema.

    Args:
        text: what is wrong with it.
        number: which it is, of those that were to be read.
    """

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


def is_asked(name: str) -> bool:
    """Whether an option is somebody's, and not what Spark adds where a table is made.

    Args:
        name: in lower case.
    """
    return name not in _OF_TABLES and not name.startswith(_REPEATED)


def option_error(option: str, value: object, problem: str) -> PipelineError:
    """Make the error for an option.

    Args:
        option: its name.
        value: what it was given.
        problem: what is wrong with that.
    """
    return PipelineError(f"option {option}={str(value)!r}: {problem}")
