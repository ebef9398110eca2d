"""Executes a verb on the entries that a command line names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from server.cli.ctl.instance import CtlEntry, CtlError, CtlInstance, CtlStatus
from server.cli.ctl.nouns import CtlNoun

_CHECK_PATH: Final = ("authorization", "entitlement", "transports", "amps-admin", "check")


class CtlResult(NamedTuple):
    """The result of an operation on one entry.

    Attributes:
        id: the entry; empty if the operation applies to the instance itself.
        text: its result in a sentence, or the reason why it failed.
        status: the exit status.
    """

    id: str
    text: str
    status: CtlStatus

    def as_data(self) -> dict[str, object]:
        """Return the fields for `--json`."""
        return {"id": self.id, "done": self.status is CtlStatus.DONE, "result": self.text}


def execute_verb(
    instance: CtlInstance,
    noun: CtlNoun,
    verb: str,
    names: Sequence[str],
    parameters: Mapping[str, str],
) -> Iterator[CtlResult]:
    """Execute an operation on entries, one after the other, also if one of them fails.

    Args:
        instance: the instance.
        noun: the kind of the entries.
        verb: the verb, which is none of the list.
        names: the entries, by their ids or unique names; none for the instance itself.
        parameters: the parameters.

    Raises:
        CtlError: the list of entries could not be read.
    """
    operation = noun.verbs[verb].operation
    if not noun.metavar:
        yield execute_operation(instance, (*noun.path, operation))
        return
    entries = instance.list_entries(noun.path)
    for name in names:
        try:
            entry_id = _find_id(entries, name, noun.metavar)
        except CtlError as error:
            yield CtlResult(name, str(error), error.status)
            continue
        path = (*noun.path, entry_id, operation)
        yield _result(entry_id, partial(instance.execute, path, parameters))


def execute_operation(instance: CtlInstance, path: Sequence[str]) -> CtlResult:
    """Execute an operation on the instance itself."""
    return _result("", lambda: instance.execute(path))


def execute_named(
    instance: CtlInstance,
    noun: CtlNoun,
    name: str,
    operation: tuple[str, ...],
    parameters: Mapping[str, str],
) -> CtlResult:
    """Execute an operation with parameters on one entry.

    Args:
        instance: the instance.
        noun: the kind of the entry.
        name: the entry, by its id or a unique name.
        operation: the path of the operation below the entry; empty if the entry is one.
        parameters: the parameters.

    Raises:
        CtlError: the list of entries could not be read.
    """
    entries = instance.list_entries(noun.path)
    try:
        entry_id = _find_id(entries, name, noun.metavar)
    except CtlError as error:
        return CtlResult(name, str(error), error.status)
    path = (*noun.path, entry_id, *operation)
    return _result(entry_id, lambda: instance.execute(path, parameters))


def check_path(instance: CtlInstance, path: str) -> CtlResult:
    """Return whether the user may request a path."""
    try:
        answer = instance.ask(_CHECK_PATH, {"path": path})
    except CtlError as error:
        return CtlResult(path, str(error), error.status)
    is_allowed = answer == "true"
    text = f"{path} is {'allowed' if is_allowed else 'not allowed'}."
    return CtlResult(path, text, CtlStatus.DONE if is_allowed else CtlStatus.REFUSED)


def _result(entry_id: str, execute: Callable[[], str]) -> CtlResult:
    try:
        return CtlResult(entry_id, execute(), CtlStatus.DONE)
    except CtlError as error:
        return CtlResult(entry_id, str(error), error.status)


def _find_id(entries: Sequence[CtlEntry], name: str, metavar: str) -> str:
    """Return the id of the entry with an id or a name.

    Raises:
        CtlError: there is none, or there are several.
    """
    if any(entry.id == name for entry in entries):
        return name
    ids = [entry.id for entry in entries if name in entry.names]
    if len(ids) == 1:
        return ids[0]
    kind = metavar.lower()
    if ids:
        text = f"several entries are the {kind} {name!r}: give one of the ids {', '.join(ids)}"
        raise CtlError(text, CtlStatus.REFUSED)
    known_ids = ", ".join(entry.id for entry in entries[:_MAX_LISTED]) or "none"
    more = ", ..." if len(entries) > _MAX_LISTED else ""
    raise CtlError(f"there is no {kind} {name!r}; there are {known_ids}{more}", CtlStatus.REFUSED)


_MAX_LISTED: Final = 10
