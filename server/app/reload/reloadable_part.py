"""The interface of the parts of an instance that take differences while it runs.

A reload asks the parts about each difference first, then has all parts prepare what can fail (files
are opened, sockets are bound, modules are made, and records are made from the transaction log), and
only then applies everything. So a reload that is refused has changed nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from config_schema.problems import Severity

if TYPE_CHECKING:
    from config_schema.problems import Problems
    from config_schema.settings import SettingChange
    from config_schema.spec import InstanceSpec


class ReloadRefusedError(Exception):
    """The configuration cannot be reloaded. The text has a line for each reason."""


class ReloadIncompleteError(Exception):
    """A part has failed to apply its differences. The text has a line for each failure."""


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """A reload.

    Attributes:
        old: the instance as it runs.
        new: the instance as it is to run.
        changes: the differences.
    """

    old: InstanceSpec
    new: InstanceSpec
    changes: tuple[SettingChange, ...]


async def do_nothing() -> None:
    """Load or apply no difference."""


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """The differences of a part, ready to be applied.

    Attributes:
        apply: applies them; an exception is logged, and the other parts are applied nevertheless.
        discard: releases what has been prepared, if they are not applied.
        remarks: consequences that the differences do not show.
        load: does the part of the preparation that takes long, and which a dry run leaves out; it
            raises `ReloadRefusedError` if they cannot be applied.
    """

    apply: Callable[[], Awaitable[None]]
    discard: Callable[[], None] = lambda: None
    remarks: tuple[str, ...] = ()
    load: Callable[[], Awaitable[None]] = do_nothing


class ReloadablePart(Protocol):
    """A part of the instance that takes differences while it runs."""

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:
        """Return why a difference needs a restart: "" if it does not, None if it is of no concern.

        Args:
            change: the difference.
            reload: both configurations, and all differences.
        """

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """Prepare the differences that this part takes; all differences have been checked.

        Raises:
            ReloadRefusedError: they cannot be applied; nothing has changed.
        """


def parts_of(change: SettingChange) -> Iterator[object]:
    """Yield the parts of the description around a difference, outermost first, on both sides."""
    yield from (entry.part for entry in change.entries)
    yield from (entry.part for entry in (change.before, change.after) if entry is not None)


def error_lines(problems: Problems) -> list[str]:
    """Return the texts of the errors among problems."""
    return [str(problem) for problem in problems if problem.severity is Severity.ERROR]
