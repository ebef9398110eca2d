"""Administrative operations, and the groups that they apply to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TypeAlias

OperationParameters: TypeAlias = Mapping[str, str]

OperationFunction: TypeAlias = Callable[[str, OperationParameters], Coroutine[None, None, str]]
"""Executes an operation on the entry with an id, with the parameters of the request; called on the
engine's thread. Returns its result, in a sentence; raises `OperationError`."""


class OperationError(Exception):
    """An operation failed. The text is the reason."""


@dataclass(frozen=True, slots=True)
class AdminOperation:
    """One administrative operation.

    Attributes:
        name: the last part of its path.
        description: its effect, in a few words.
        execute: executes it.
        required_parameters: parameters that a request must have.
        ends_sessions: whether every user has to log on to the admin interface again.
        display_name: the name to display; empty for the name in the path.
        audited_parameters: parameters that the audit trail shows, with their values.
    """

    name: str
    description: str
    execute: OperationFunction
    required_parameters: tuple[str, ...] = ()
    ends_sessions: bool = False
    display_name: str = ""
    audited_parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """Entries of one kind, and the operations for each of them.

    Attributes:
        path: below /amps/administrator.
        operations: the operations.
        list_entries: returns the ids of the entries, each with its name for people; called on the
            engine's thread. None without entries: operations apply to the instance itself.
    """

    path: tuple[str, ...]
    operations: tuple[AdminOperation, ...]
    list_entries: Callable[[], Mapping[str, str]] | None = None

    def find_operation(self, name: str) -> AdminOperation | None:
        """Return the operation of a name."""
        return next((operation for operation in self.operations if operation.name == name), None)
