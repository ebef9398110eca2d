"""The operations on backups: to begin one, and to cancel it.

A request names a directory on the server's host. It must be in the `BackupDirectory` of the Admin
section, so that the right to make backups is not the right to write anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from config_schema.units import UnitError, parse_count
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.engine.maintenance.backup import BackupError
from server.storage.backup.catalogue import BackupRetention

if TYPE_CHECKING:
    from actions.services import ActionServices


def backup_operation(services: ActionServices, root: Path) -> AdminOperation:
    """Return the operation that begins a backup.

    Args:
        services: the instance.
        root: the directory that backups must be in.
    """

    async def begin(_id: str, parameters: OperationParameters) -> str:
        if services.backup is None:
            raise OperationError("The instance is still starting.")
        directory = _destination(root, parameters.get("directory", ""))
        retention = BackupRetention(
            _parameter(parameters, "keep"), _parameter(parameters, "keep_days")
        )
        try:
            run = await services.backup.begin(directory, retention)
        except BackupError as error:
            raise OperationError(f"No backup could be begun: {error}.") from None
        return f"Backup {run.id} has begun in {directory}."

    return AdminOperation("backup", "make a backup, which goes on in the background", begin)


def backup_group(services: ActionServices) -> OperationGroup:
    """Return the backups since the start, with their states, and the operation to cancel one."""

    async def cancel(name: str, _parameters: OperationParameters) -> str:
        runs = () if services.backup is None else services.backup.runs
        for run in runs:
            if run.id == name and run.is_running:
                run.is_aborted.set()
                return f"Backup {name} is being aborted."
        raise OperationError(f"The backup {name!r} is not being made.")

    return OperationGroup(
        ("backups",),
        (AdminOperation("cancel", "abort it, and remove its files", cancel),),
        lambda: (
            {} if services.backup is None else {run.id: run.state for run in services.backup.runs}
        ),
    )


def _destination(root: Path, name: str) -> Path:
    """Return the directory that a request names; relative names begin at the root.

    Raises:
        OperationError: it is not the root, or below it.
    """
    full_root = root.resolve()
    directory = (full_root / name).resolve()
    if not directory.is_relative_to(full_root):
        raise OperationError(
            f"Backups are made in {full_root} and below: {directory} is not there. BackupDirectory "
            "of the Admin section sets the directory."
        )
    return directory


def _parameter(parameters: OperationParameters, name: str) -> int | None:
    """Return a number of a request; None if it is left out.

    Raises:
        OperationError: it is not a number.
    """
    text = parameters.get(name, "")
    try:
        return parse_count(text) if text else None
    except UnitError as error:
        raise OperationError(f"{name}: {error}.") from None
