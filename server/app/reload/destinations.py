"""Replication destinations, added, removed and changed while the instance runs.

A destination that has changed stops, and starts as at a start of the instance: it resumes from its
position in the log, and a downgrade ends. All links are closed and made again, those of other
destinations and of other instances too, also when topics come or go: both ends validate the
configuration of the other one when a link begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from config_schema.spec import (
    ConflatedTopicSpec,
    DestinationSpec,
    InstanceSpec,
    JournaledTopicSpec,
    ModuleSpec,
    QueueSpec,
    TopicSpec,
    ViewSpec,
)
from config_schema.topology import check_link, describe
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadRefusedError,
    do_nothing,
    parts_of,
)
from server.app.wiring.provision_replication import (
    hold_files,
    make_destination,
    make_routes,
    replicates,
)
from server.transports.listener import TransportError

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from config_schema.topology import InstanceDescription
    from server.engine.engine import Engine
    from server.replication.core import Routes
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationDestination
    from server.replication.transport.connector import ReplicationConnector

_TOPICS: Final = (TopicSpec, ViewSpec, ConflatedTopicSpec, QueueSpec, JournaledTopicSpec)
"""Parts of the description that other instances validate."""
_MIN_SYNC_DESTINATIONS: Final = "Tuning/Replication/MinSyncDestinations"


class DestinationsReload:
    """The destinations; see `ReloadablePart`.

    Args:
        engine: the engine.
        connector: connects to the destinations; None if the instance takes no part in replication.
    """

    def __init__(self, engine: Engine, connector: ReplicationConnector | None) -> None:
        self._engine = engine
        self._connector = connector

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        if modules := _module_names(change):
            return (
                "" if modules <= _authenticators(reload.old) | _authenticators(reload.new) else None
            )
        is_destination = any(isinstance(part, DestinationSpec) for part in parts_of(change))
        if not is_destination and change.key != _MIN_SYNC_DESTINATIONS:
            return None
        if self._connector is None:
            return "an instance begins to take part in replication at a start"
        return _queue_reason(reload) if is_destination else ""

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        connector, description = self._connector, describe(reload.new)
        if connector is None:
            return PreparedChange(do_nothing)
        changed = _changed_names(reload)
        specs = [spec for spec in reload.new.replication if spec.name in changed]
        try:
            connectors = connector.prepare(specs, reload.new.modules)
        except TransportError as error:
            raise ReloadRefusedError(str(error)) from None
        routes = {spec.name: make_routes(spec, reload.new, self._engine) for spec in specs}
        links = connector.links
        is_described_anew = (
            bool(changed)
            or _address(description) != _address(describe(reload.old))
            or any(
                isinstance(part, _TOPICS) for change in reload.changes for part in parts_of(change)
            )
        )

        async def apply() -> None:
            await connector.stop(changed)
            if is_described_anew:
                links.use_description(description)  # closes links, also of destinations that go
                self._replace_destinations(links, reload.new, routes)
            connector.start(connectors)
            tracker = links.replication.ack_tracker
            tracker.min_sync_destinations = reload.new.tuning.min_sync_destinations or 0

        remarks = tuple(_remarks(links, description)) if is_described_anew else ()
        return PreparedChange(apply, remarks=remarks)

    def _replace_destinations(
        self, links: LinkRegistry, spec: InstanceSpec, routes: Mapping[str, Routes]
    ) -> None:
        """Replace the destinations; those without routes stay."""
        replication, log = links.replication, self._engine.transaction_log
        if log is None:
            raise AssertionError("an instance that replicates has a log")
        destinations: dict[str, ReplicationDestination] = {}
        for destination_spec in spec.replication:
            name = destination_spec.name
            before = replication.destinations.get(name)
            if name not in routes:
                destinations[name] = replication.destinations[name]
                continue
            made = make_destination(
                destination_spec,
                spec.name,
                routes[name],
                log,
                replication.log_id,
                0 if before is None else before.sender.first_needed_txid - 1,
            )
            destinations[name] = made if before is None else _with_counters(made, before)
        replication.replace_destinations(destinations)
        for name in routes:
            hold_files(destinations[name], replication, self._engine, log)


def _with_counters(
    destination: ReplicationDestination, before: ReplicationDestination
) -> ReplicationDestination:
    """Return a destination with the counters that it had before it changed."""
    destination.sender.sent_entries = before.sender.sent_entries
    return replace(
        before,
        spec=destination.spec,
        sender=destination.sender,
        direction=destination.direction,
        link_problem="",
    )


def _module_names(change: SettingChange) -> set[str]:
    return {part.name for part in parts_of(change) if isinstance(part, ModuleSpec)}


def _authenticators(spec: InstanceSpec) -> set[str]:
    """Return the names of the modules that log on to destinations."""
    return {module for destination in spec.replication for module in _modules_of(destination)}


def _modules_of(destination: DestinationSpec) -> set[str]:
    return {
        transport.authenticator.module
        for transport in destination.transports
        if transport.authenticator is not None
    }


def _changed_names(reload: ConfigurationChange) -> set[str]:
    """Return the destinations of both configurations that are added, removed or changed."""
    names = {
        part.name
        for change in reload.changes
        for part in parts_of(change)
        if isinstance(part, DestinationSpec)
    }
    # the name of a destination without a Name can change with its address
    old, new = ({spec.name for spec in side.replication} for side in (reload.old, reload.new))
    modules = {name for change in reload.changes for name in _module_names(change)}
    users = {spec.name for spec in reload.new.replication if _modules_of(spec) & modules}
    return names | (old ^ new) | users


def _queue_reason(reload: ConfigurationChange) -> str:
    """Return why the destinations need a restart: a queue is shared from a start on."""
    kept = {(spec.message_type, spec.name) for spec in reload.new.sow}
    for queue in reload.old.sow:
        if isinstance(queue, QueueSpec) and queue.kind != "LocalQueue":
            topic = queue.message_type, queue.name
            if topic in kept and replicates(reload.old, *topic) != replicates(reload.new, *topic):
                return f"queue {queue.name} begins or ceases to be shared at a start"
    return ""


def _address(description: InstanceDescription) -> tuple[str | None, int, bool] | None:
    """Return the address at which an instance accepts replication."""
    listens = description.listens
    return None if listens is None else (listens.host, listens.port, listens.is_secure)


def _remarks(links: LinkRegistry, description: InstanceDescription) -> Iterator[str]:
    """Yield the consequences for links, and the validation errors of instances that have one."""
    yield f"all links of replication are closed and made again: {len(links.peers)}"
    for peer in links.peers.values():
        yield from _validation_errors(description, peer.description)
        yield from _validation_errors(peer.description, description)


def _validation_errors(source: InstanceDescription, to: InstanceDescription) -> Iterator[str]:
    """Yield the reasons why an instance will not replicate to another one."""
    for destination in source.destinations:
        if destination.known_by != "address" and destination.is_for(to):
            for finding in check_link(source, destination, to):
                if finding.is_error:
                    yield f"{source.name} will not replicate to {to.name}: {finding.problem}"
