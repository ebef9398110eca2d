"""Topics, views and queues, added and removed while the instance runs.

A reload gives what a restart with the new configuration would give. Where that takes a part of the
start that clients would have to wait for, such as making records from the transaction log, the
difference needs a restart (`topic_reasons.py`).

The transaction log is read before anything changes: if that fails, the reload is refused. The
records of views and conflated topics are made beside traffic, from those that their topics have at
one moment and from the changes since then; clients find such a topic when it is complete. The
subscriptions to a topic stay when it comes or goes, except for those to a queue that goes by its
name: their clients expect leases.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.spec import (
    ConflatedTopicSpec,
    JournaledTopicSpec,
    QueueSpec,
    TopicSpec,
    ViewSpec,
)
from server.app.diff import change_title
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadIncompleteError,
    ReloadRefusedError,
    do_nothing,
)
from server.app.reload.topic_reasons import (
    TopicReasons,
    added_part,
    changed_topic,
    has_records_of,
    removed_part,
)
from server.app.wiring.provision import ProvisionError
from server.app.wiring.provision_sow import rekey_all_records, store_logged_flags
from server.expressions.backends import columns
from server.message_types.base import BodyError
from server.storage.journal import JournalUnreadableError
from server.storage.sow.records import to_nanoseconds
from server.storage.sow.recovery import RecordRebuild
from server.storage.sow.rekey import may_need_rekeying
from server.storage.sow.store import RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actions.services import ActionServices
    from config_schema.settings import SettingChange
    from config_schema.spec import SowSpec, TopicRef
    from server.app.wiring.open_topics import OpenTopics
    from server.app.wiring.provision_queues import InstanceQueues
    from server.app.wiring.provision_sow import OpenTopic
    from server.queues.topic.queue_topic import QueueTopic
    from server.queues.topic.recovery import QueueFill
    from server.topics.conflated_topic import ConflatedTopic
    from server.topics.record_source import RecordSource
    from server.topics.view_topic import View


_RETRY_S: Final = 0.5
_STORE_TIMEOUT_S: Final = 30.0
"""Seconds in which the transaction log has to be on stable storage."""


@dataclass(frozen=True, slots=True)
class _TopicChanges:
    """The topics that come and go.

    Attributes:
        stored: new SOW topics.
        derived: new views and conflated topics.
        queues: new queues.
        recorded: new topics of the transaction log.
        removed: topics that go.
        removed_queues: queues that go.
        changed: SOW topics of which elements change.
    """

    stored: list[TopicSpec]
    derived: list[ViewSpec | ConflatedTopicSpec]
    queues: list[QueueSpec]
    recorded: list[JournaledTopicSpec]
    removed: list[TopicSpec | ViewSpec | ConflatedTopicSpec]
    removed_queues: list[QueueSpec]
    changed: list[TopicSpec]

    @property
    def is_empty(self) -> bool:
        """True if no topic comes or goes."""
        added = self.stored or self.derived or self.queues or self.recorded
        return not (added or self.removed or self.removed_queues or self.changed)


class TopicsReload:
    """The topics; see `ReloadablePart`.

    Args:
        topics: opens topics with records.
        queues: the queues; None without a transaction log.
        services: the engine, and the links with other instances.
    """

    def __init__(
        self, topics: OpenTopics, queues: InstanceQueues | None, services: ActionServices
    ) -> None:
        self._topics = topics
        self._queues = queues
        self._services = services
        self._engine = services.engine
        self._reasons = TopicReasons(topics, services)

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        reasons = self._reasons.reasons_of(change, reload)
        return None if reasons is None else next(reasons, "")

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        changes = _changes_of(reload)
        if changes.is_empty:
            return PreparedChange(do_nothing)
        opened: list[OpenTopic] = []
        try:
            self._open_all(changes.stored, opened, reload)
            rebuilds = self._begin_rebuilds(opened, reload)
            derived = self._make_all(changes.derived, opened, reload)
        except BaseException:
            _close(opened)
            raise
        fills: list[QueueFill] = []
        return PreparedChange(
            partial(self._apply, changes, opened, fills, derived, reload),
            partial(self._discard, opened, fills),
            tuple(self._remarks(changes)),
            partial(self._load, changes, opened, rebuilds, fills, reload),
        )

    def _remarks(self, changes: _TopicChanges) -> Iterator[str]:
        """Yield the number of messages and consumers of queues that go."""
        for spec in changes.removed_queues:
            if queue := self._find_queue(spec):
                core = queue.core
                yield (
                    f"queue {spec.name} is removed, with {core.depth} messages,"
                    f" {core.leased_count} of them leased, and {len(core.dispatch.slots)} consumers"
                )

    def _find_queue(self, spec: QueueSpec) -> QueueTopic | None:
        """Return a queue; None if a reload has failed to add it."""
        queues = self._engine.topics.queues
        return None if queues is None else queues.find(spec.message_type, spec.name)

    def _open_all(
        self, specs: list[TopicSpec], opened: list[OpenTopic], reload: ConfigurationChange
    ) -> None:
        """Open SOW topics.

        Args:
            specs: their descriptions.
            opened: gets the opened topics.
            reload: both configurations, and all differences.

        Raises:
            ReloadRefusedError: one of them cannot be opened, or a start would change its SOW keys.
        """
        if specs and not reload.old.sow:
            columns.warm_up()
        try:
            for spec in specs:
                topic = self._topics.open(spec, reload.new.modules)
                opened.append(topic)
                if may_need_rekeying(topic.sow):
                    raise ReloadRefusedError(
                        f"needs a restart: SOW topic {spec.name}: the records of {spec.file_name}"
                        " may have SOW keys of another Key"
                    )
        except ProvisionError as error:
            raise ReloadRefusedError(str(error)) from None

    def _rekey(self, topic: OpenTopic) -> None:
        """Rekey records if the topic now generates other SOW keys for them.

        Raises:
            ProvisionError: there is no room for a record under its new key.
        """
        settle = self._topics.committer.wait_for_jobs
        rekey_all_records([topic.sow], self._engine.log, settle, lambda: None)

    def _begin_rebuilds(
        self, opened: list[OpenTopic], reload: ConfigurationChange
    ) -> dict[OpenTopic, RecordRebuild]:
        """Return what makes the records of topics from the transaction log.

        Raises:
            ReloadRefusedError: a start would undo changes of records, or the log cannot be read.
        """
        log = self._engine.transaction_log
        rebuilds: dict[OpenTopic, RecordRebuild] = {}
        for topic in opened:
            sow = topic.sow
            if log is None or not reload.new.is_journaled(sow.type_name, sow.name):
                continue
            if sow.table.store.last_sequence > log.last_txid:
                raise ReloadRefusedError(
                    f"needs a restart: SOW topic {sow.name}: {sow.spec.file_name} is ahead of the"
                    " transaction log"
                )
            try:
                known = log.journal.known_topics()
            except JournalUnreadableError as error:
                raise ReloadRefusedError(f"TransactionLog: {error}") from None
            has_entries = any(
                topic_in_log.message_type == sow.type_name and sow.covers_topic(topic_in_log.name)
                for topic_in_log in known
            )
            rebuilds[topic] = RecordRebuild(sow, log.journal, has_entries=has_entries)
        return rebuilds

    def _make_all(
        self,
        specs: list[ViewSpec | ConflatedTopicSpec],
        opened: list[OpenTopic],
        reload: ConfigurationChange,
    ) -> list[View | ConflatedTopic]:
        """Make views and conflated topics, without records.

        Raises:
            ReloadRefusedError: one of them cannot be made.
        """
        own: dict[TopicRef, RecordSource] = {topic.sow.spec.ref: topic.sow for topic in opened}
        made: list[View | ConflatedTopic] = []
        for spec in sorted(specs, key=reload.new.sow.index):
            try:
                topic = self._engine.make_derived_topic(
                    spec,
                    lambda ref: (
                        own[ref] if ref in own else self._engine.sow_registry.find_configured(ref)
                    ),
                )
            except BodyError as error:
                raise ReloadRefusedError(f"{spec.location}: view {spec.name}: {error}") from None
            if topic is not None:
                own[spec.ref] = topic
                made.append(topic)
        return made

    def _discard(self, opened: list[OpenTopic], fills: list[QueueFill]) -> None:
        if self._queues is not None:
            self._queues.discard(fills)
        _close(opened)

    async def _load(
        self,
        changes: _TopicChanges,
        opened: list[OpenTopic],
        rebuilds: Mapping[OpenTopic, RecordRebuild],
        fills: list[QueueFill],
        reload: ConfigurationChange,
    ) -> None:
        """Make what new topics and queues take from the transaction log.

        Args:
            changes: the topics that come and go.
            opened: the new SOW topics.
            rebuilds: what makes the records of some of them.
            fills: gets the new queues.
            reload: both configurations, and all differences.

        Raises:
            ReloadRefusedError: the log cannot be read or written, or a record not be stored; or
                clients now use topics in a way that needs a restart.
        """
        if self._queues is not None:
            fills.extend(self._queues.make(changes.queues))
        try:
            await self._read_log([*rebuilds.values(), *fills])
            for topic in opened:
                self._rekey(topic)
        except (JournalUnreadableError, RecordStoreError, ProvisionError) as error:
            raise ReloadRefusedError(str(error)) from None
        except TimeoutError:
            raise ReloadRefusedError("the transaction log cannot be written") from None
        self._check_again(reload)

    async def _read_log(self, readers: Sequence[RecordRebuild | QueueFill]) -> None:
        """Read the transaction log to its end; the caller has to use the results without a wait.

        Raises:
            JournalUnreadableError: the log cannot be read.
            RecordStoreError: a record cannot be stored.
            TimeoutError: the log cannot be written.
        """
        log = self._engine.transaction_log
        if log is None or not readers:
            return
        release = log.hold_files(lambda: min(one.position for one in readers) + 1, "reload")
        try:
            while sum(reader.step() for reader in readers):  # each of them in turn
                await asyncio.sleep(0)  # clients and timers go on
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                while not log.journal.commit():  # as it cannot be written; publishers wait as well
                    await asyncio.sleep(_RETRY_S)
            for reader in readers:
                while reader.step():  # the entries of the last moment
                    pass
        finally:
            release()

    def _check_again(self, reload: ConfigurationChange) -> None:
        """Check the differences that clients may have prevented while the log was read.

        Raises:
            ReloadRefusedError: one of them needs a restart.
        """
        for change in reload.changes:
            if isinstance(added_part(change), TopicSpec):
                continue  # its records are made
            if reason := self.check(change, reload):
                raise ReloadRefusedError(f"needs a restart: {change_title(change)}: {reason}")

    async def _apply(
        self,
        changes: _TopicChanges,
        opened: list[OpenTopic],
        fills: list[QueueFill],
        derived: list[View | ConflatedTopic],
        reload: ConfigurationChange,
    ) -> None:
        engine, log = self._engine, reload.new.transaction_log
        unused = list(opened)
        try:
            for spec in changes.removed:
                source = engine.sow_registry.find_configured(spec.ref)
                if source is not None:
                    self._topics.remove(source)
            for changed in changes.changed:
                sow = engine.sow_registry.find_configured(changed.ref)
                if isinstance(sow, SowTopicRecords):
                    sow.spec = changed
            removals_stored = self._remove_queues(changes.removed_queues)
            if engine.transaction_log is not None and log is not None:
                engine.transaction_log.use_topics(log.topics)
            self._renew([*changes.removed, *changes.removed_queues], changes.recorded, reload)
            self._add_stored(unused)
        except BaseException:
            _close(unused)
            raise
        store_logged_flags([topic.sow for topic in opened], engine)
        begins_stored = self._add_queues(fills)
        self._renew([*changes.stored, *changes.queues], [], reload)
        await self._add_derived(derived)
        self._renew(changes.derived, [], reload)
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                for stored in (begins_stored, *removals_stored):
                    await stored.wait()
        except TimeoutError:
            raise ReloadIncompleteError("a restart may not find where queues begin") from None

    def _add_stored(self, topics: list[OpenTopic]) -> None:
        """Add SOW topics, and take each of them out of the list."""
        while topics:
            topic = topics.pop(0)
            self._topics.add(topic)
            self._engine.sow_registry.mark_changed(topic.sow)

    def _remove_queues(self, specs: list[QueueSpec]) -> list[asyncio.Event]:
        """Remove queues, and return the events that a start would not find their state."""
        events: list[asyncio.Event] = []
        for spec in specs:
            queue = self._find_queue(spec)
            if queue is not None and self._queues is not None:
                events.append(asyncio.Event())
                self._queues.remove(queue, events[-1].set)
        return events

    def _add_queues(self, fills: list[QueueFill]) -> asyncio.Event:
        """Add queues, and return the event that a start would find where they begin."""
        is_stored = asyncio.Event()
        if self._queues is None:
            is_stored.set()
        else:
            self._queues.add(fills, is_stored.set)
        return is_stored

    async def _add_derived(self, topics: list[View | ConflatedTopic]) -> None:
        """Add views and conflated topics, when all of them have their records."""
        sow_registry, clock = self._engine.sow_registry, self._engine.clock
        try:
            for topic in topics:
                sow_registry.connect(topic)
                for _ in topic.begin_population(to_nanoseconds(clock.now())):
                    await asyncio.sleep(0)  # clients and timers go on
        except BaseException:
            for topic in topics:
                sow_registry.disconnect(topic)
            raise
        for topic in topics:
            topic.finish_population()
            sow_registry.add_connected(topic)

    def _renew(
        self,
        changed: Sequence[SowSpec],
        recorded: Sequence[JournaledTopicSpec],
        reload: ConfigurationChange,
    ) -> None:
        """Have clients use topics as they are now.

        Args:
            changed: the topics that have been added or removed.
            recorded: the topics that have been added to the transaction log.
            reload: both configurations, and all differences.
        """
        engine, old = self._engine, reload.old

        def is_recorded_now(message_type: str, name: str) -> bool:
            return (
                any(topic.covers(message_type, name) for topic in recorded)
                and not old.is_journaled(message_type, name)
                and engine.sow_registry.find(message_type, name) is None
            )

        engine.sow_registry.arrange([topic.ref for topic in reload.new.sow])
        self._topics.open_lookups()
        engine.topics.renew(
            lambda message_type, name: (
                any(has_records_of(topic, message_type, name) for topic in changed)
                or is_recorded_now(message_type, name)
            )
        )
        engine.topics.update_feeds()


def _changes_of(reload: ConfigurationChange) -> _TopicChanges:
    added = [added_part(change) for change in reload.changes]
    removed = [removed_part(change) for change in reload.changes]
    return _TopicChanges(
        [part for part in added if isinstance(part, TopicSpec)],
        [part for part in added if isinstance(part, ViewSpec | ConflatedTopicSpec)],
        [part for part in added if isinstance(part, QueueSpec)],
        [part for part in added if isinstance(part, JournaledTopicSpec)],
        [part for part in removed if isinstance(part, TopicSpec | ViewSpec | ConflatedTopicSpec)],
        [part for part in removed if isinstance(part, QueueSpec)],
        [topic for change in reload.changes if (topic := changed_topic(change))],
    )


def _close(opened: list[OpenTopic]) -> None:
    """Close topics, and remove the files that did not exist before."""
    with ExitStack() as closing:  # a failure keeps no other file open
        for topic in opened:
            if topic.is_file_new and topic.sow.spec.file_name is not None:
                closing.callback(Path(topic.sow.spec.file_name).unlink, missing_ok=True)
            closing.callback(topic.close)
