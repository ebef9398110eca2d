"""The groups of an instance: their entries, and the implementation of each operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from actions.context import RESERVED_PREFIX
from actions.minidumps import take_minidump
from actions.reset import reset_authentication, reset_entitlement
from server.admin.operations.backups import backup_group, backup_operation
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.admin.operations.queues import queue_group
from server.engine.maintenance.journal_retention import JournalAction
from server.engine.maintenance.sow_compaction import compact
from server.queues.topic.report import report
from server.statistics.sources.texts import topic_ids
from server.storage.journal import JournalError
from server.storage.sow.store import RecordStoreError
from server.transports.listener import TransportError
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from actions.services import ActionServices, RequestedAction
    from server.engine.session import Session
    from server.replication.links.replication_state import ReplicationState
    from server.storage.sow.topic_records import SowTopicRecords

_EntryT = TypeVar("_EntryT")

_JOURNALS: Final = ("transaction_log", "journals")


def groups_of(services: ActionServices, backup_directory: Path) -> list[OperationGroup]:
    """Return all groups, also those of which this instance has nothing.

    Args:
        services: the instance, with its topics recovered and its actions provisioned.
        backup_directory: the directory that requested backups must be in.
    """
    return [
        _requested(services.requested_actions),
        _authorization(services),
        _clients(services),
        OperationGroup(("diagnostics",), (_dump(services),)),
        OperationGroup(("logging",), (_rotate(services),)),
        OperationGroup((), (_minidump(services), backup_operation(services, backup_directory))),
        backup_group(services),
        queue_group(services),
        _replication(services),
        _sow(services),
        _journals(services),
        _transports(services),
    ]


def _requested(actions: Iterable[RequestedAction]) -> OperationGroup:
    """Return the actions that run on a request; those with one path run together."""
    by_path: dict[str, list[RequestedAction]] = {}
    for action in actions:
        by_path.setdefault(action.path, []).append(action)

    async def post(
        path_actions: Sequence[RequestedAction], _id: str, parameters: OperationParameters
    ) -> str:
        if reserved := [name for name in parameters if name.startswith(RESERVED_PREFIX)]:
            raise OperationError(
                f"Variables that begin with {RESERVED_PREFIX} are set by the instance, and not by "
                f"parameters of a request: {', '.join(reserved)}."
            )
        values = {name: text_to_bytes(value) for name, value in parameters.items()}
        for action in path_actions:
            action.post(values)
        return f"{' and '.join(action.name for action in path_actions)}: begun."

    operations = (
        AdminOperation(
            path,
            "; ".join(action.description for action in path_actions if action.description),
            partial(post, path_actions),
            tuple(
                dict.fromkeys(
                    name for action in path_actions for name in action.required_parameters
                )
            ),
            display_name=" and ".join(action.name for action in path_actions),
        )
        for path, path_actions in by_path.items()
    )
    return OperationGroup(("actions",), tuple(operations))


def _authorization(services: ActionServices) -> OperationGroup:
    async def reset(subject: str, _parameters: OperationParameters) -> str:
        if subject == "authentication":
            reset_authentication(services.engine)
        else:
            reset_entitlement(services.engine)
        return f"{subject} has been reset."

    description = "discard cached decisions"
    operations = (AdminOperation("reset", description, reset, ends_sessions=True),)
    return OperationGroup(
        ("authorization",), operations, lambda: {"authentication": "", "entitlement": ""}
    )


def _clients(services: ActionServices) -> OperationGroup:
    engine = services.engine

    def sessions() -> dict[str, Session]:
        return {str(session.number): session for session in engine.sessions}

    async def disconnect(number: str, _parameters: OperationParameters) -> str:
        session = _find(sessions(), number, "client")
        session.close("")  # real servers give no reason
        engine.flush()
        return f"{session.client_name} is disconnected."

    return OperationGroup(
        ("clients",),
        (AdminOperation("disconnect", "close the connection", disconnect),),
        lambda: {number: session.client_name for number, session in sessions().items()},
    )


def _dump(services: ActionServices) -> AdminOperation:
    async def dump(_id: str, _parameters: OperationParameters) -> str:
        queues = services.engine.topics.queues
        text = "there are no queues"
        if queues is not None:
            text = report(queues, services.engine.clock.steady())
        services.engine.log.emit("31-0010", text=text)
        return "The state of the queues has been written to the log."

    return AdminOperation("dump", "write the state of the queues to the log", dump)


def _rotate(services: ActionServices) -> AdminOperation:
    async def rotate(_id: str, _parameters: OperationParameters) -> str:
        services.rotate_logs()
        return "Log files are continued in their next files."

    return AdminOperation("rotate", "continue log files in their next files", rotate)


def _minidump(services: ActionServices) -> AdminOperation:
    async def write(_id: str, _parameters: OperationParameters) -> str:
        try:
            path = await take_minidump(services)
        except OSError as error:
            raise OperationError(f"No minidump could be written: {error}.") from None
        if path is None:
            raise OperationError("Minidumps are disabled by MiniDumpDirectory.")
        return f"Minidump written to {path}."

    return AdminOperation("minidump", "write the state of the process to a file", write)


def _replication(services: ActionServices) -> OperationGroup:
    replication = services.replication

    async def downgrade(name: str, _parameters: OperationParameters) -> str:
        is_new = _require_sync_destination(replication, name).downgrade(name)
        return f"{name} is {'' if is_new else 'already '}no longer waited for."

    async def upgrade(name: str, _parameters: OperationParameters) -> str:
        is_new = _require_sync_destination(replication, name).upgrade(name)
        return f"{name} is {'' if is_new else 'already '}waited for again."

    async def reconnect(name: str, _parameters: OperationParameters) -> str:
        _require_destination(replication, name)
        link_registry = services.link_registry
        if link_registry is None or not link_registry.reconnect(name):
            raise OperationError(
                f"There is no connection with {name}, which is connected to all the time."
            )
        return f"The connection with {name} is closed, and made again."

    return OperationGroup(
        ("replication",),
        (
            AdminOperation("reconnect", "close the connection, and make it again", reconnect),
            AdminOperation("downgrade", "do not have publishers wait for it", downgrade),
            AdminOperation("upgrade", "have publishers wait for it again", upgrade),
        ),
        lambda: _unnamed_entries(() if replication is None else replication.destinations),
    )


def _require_destination(replication: ReplicationState | None, name: str) -> ReplicationState:
    """Return the instance's replication, if it has a destination of this name."""
    if replication is None or name not in replication.destinations:
        raise OperationError(f"There is no destination {name!r} any more.")
    return replication


def _require_sync_destination(replication: ReplicationState | None, name: str) -> ReplicationState:
    """Return the same, if publishers can wait for the destination."""
    state = _require_destination(replication, name)
    if state.destinations[name].spec.sync_type != "sync":
        raise OperationError(f"{name} is configured as async: publishers do not wait for it.")
    return state


def _sow(services: ActionServices) -> OperationGroup:
    def topics_by_id() -> dict[str, SowTopicRecords]:
        topics = list(services.engine.sow_registry.topics)
        ids = topic_ids((sow.spec.name, sow.spec.message_type) for sow in topics)
        return dict(zip(ids, topics, strict=True))

    async def compact_file(name: str, _parameters: OperationParameters) -> str:
        try:
            await compact(_find(topics_by_id(), name, "topic with records of its own"))
        except RecordStoreError as error:
            raise OperationError(f"{name} could not be compacted: {error}.") from None
        return f"{name} has been compacted."

    return OperationGroup(
        ("sow",),
        (AdminOperation("compact", "give back unused space of its file", compact_file),),
        lambda: _unnamed_entries(topics_by_id()),
    )


def _journals(services: ActionServices) -> OperationGroup:
    retention = services.journal_retention

    async def mark(action: JournalAction, name: str, _parameters: OperationParameters) -> str:
        if retention is None or name not in retention.full_file_names:
            raise OperationError(f"There is no journal that is full {name!r} any more.")
        try:
            await retention.mark_through(action, name)
        except JournalError as error:
            raise OperationError(f"{name} cannot be {action.value}: {error}.") from None
        return f"{name} and all older journals are being {action.value}."

    return OperationGroup(
        _JOURNALS,
        (
            AdminOperation(
                "compress", "compress it, and all older ones", partial(mark, JournalAction.COMPRESS)
            ),
            AdminOperation(
                "archive", "archive it, and all older ones", partial(mark, JournalAction.ARCHIVE)
            ),
            AdminOperation(
                "remove", "remove it, and all older ones", partial(mark, JournalAction.REMOVE)
            ),
        ),
        lambda: _unnamed_entries(() if retention is None else retention.full_file_names),
    )


def _transports(services: ActionServices) -> OperationGroup:
    transports = services.transports

    async def enable(name: str, _parameters: OperationParameters) -> str:
        _find(_unnamed_entries(transports.names), name, "transport")
        try:
            await transports.enable(name)
        except TransportError as error:
            raise OperationError(f"{name} cannot be enabled: {error}.") from None
        return f"{name} is enabled."

    async def disable(name: str, _parameters: OperationParameters) -> str:
        _find(_unnamed_entries(transports.names), name, "transport")
        await transports.disable(name)
        return f"{name} is disabled."

    return OperationGroup(
        ("transports",),
        (
            AdminOperation("enable", "take connections", enable),
            AdminOperation(
                "disable", "take no connections, and close those that there are", disable
            ),
        ),
        lambda: _unnamed_entries(transports.names),
    )


def _unnamed_entries(names: Iterable[str]) -> dict[str, str]:
    """Return entries that have no name but their id."""
    return dict.fromkeys(names, "")


def _find(entries: Mapping[str, _EntryT], name: str, kind: str) -> _EntryT:
    entry = entries.get(name)
    if entry is None:
        raise OperationError(f"There is no {kind} {name!r} any more.")
    return entry
