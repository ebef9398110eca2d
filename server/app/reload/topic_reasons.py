"""The reasons why topics, views and queues need a restart to come or go."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.regex import matches
from config_schema.spec import (
    ConflatedTopicSpec,
    JournaledTopicSpec,
    QueueSpec,
    TopicSpec,
    ViewSpec,
)
from server.app.wiring.access_resources import is_container
from server.expressions.topic_names import select_topics
from server.queues.topic.recovery import END_RECOVERY_POINTS
from server.storage.journal import JournalUnreadableError
from server.storage.sow.keys.generators import CHAINING
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.subscriptions.record_fanout import RecordFanout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actions.services import ActionServices
    from config_schema.settings import SettingChange
    from config_schema.spec import InstanceSpec, SowSpec
    from server.app.reload.reloadable_part import ConfigurationChange
    from server.app.wiring.open_topics import OpenTopics

_DEFERRED_ELEMENTS: Final = (
    "SlabSize",
    "InitialSlabCount",
    "ExpectedKeyCountHint",
    "RecoveryPoint",
)
"""Elements of a SOW topic that count when its file is made, or at the next start."""
_EXPIRE_TRIGGER: Final = "amps-action-on-sow-expire-message"
_MAX_FILE_SIZE: Final = 64 * 1024 * 1024
"""Bytes of records that a reload reads, while clients wait."""
_MAX_LOG_SIZE: Final = 4 * 1024 * 1024 * 1024
"""Bytes of the transaction log that a reload reads to make records."""
_MAX_RECORDS: Final = 1_000_000
"""Records of the topics that a view or a conflated topic is made from: they are in memory twice."""
_MAX_FREED_RECORDS: Final = 200_000
"""Records in memory that a reload frees, while clients wait."""
_MAX_LEASES: Final = 20_000
"""Leases of a queue that a reload ends, while clients wait."""
_MAX_TOPICS: Final = 20_000
"""Topics in use that a reload compares with a Pattern, while clients wait."""
_MAX_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions that a reload attaches to topics again, while clients wait."""


class TopicReasons:
    """Finds why differences of topics need a restart.

    Args:
        topics: the topics that are open.
        services: the engine, and the replication.
    """

    def __init__(self, topics: OpenTopics, services: ActionServices) -> None:
        self._topics = topics
        self._services = services
        self._engine = services.engine

    def reasons_of(
        self, change: SettingChange, reload: ConfigurationChange
    ) -> Iterator[str] | None:
        """Return why a difference needs a restart; None if it is none of topics that come or go."""
        match added_part(change), removed_part(change):
            case TopicSpec() as topic, _:
                return self._topic_reasons(topic, reload)
            case (ViewSpec() | ConflatedTopicSpec()) as topic, _:
                return self._derived_reasons(topic, reload)
            case QueueSpec() as queue, _:
                return self._queue_reasons(queue, reload)
            case JournaledTopicSpec() as topic, _:
                return self._recording_reasons(topic, reload)
            case _, (TopicSpec() | ViewSpec() | ConflatedTopicSpec()) as topic:
                return self._removal_reasons(topic, reload)
            case _, QueueSpec() as queue:
                return self._queue_removal_reasons(queue)
        changed = changed_topic(change)
        if changed is not None:
            return self._change_reasons(changed, change)
        return None

    def _change_reasons(self, topic: TopicSpec, change: SettingChange) -> Iterator[str]:
        """Yield why a changed element of a SOW topic needs a restart."""
        source = self._engine.sow_registry.find_configured(topic.ref)
        if change.key == "Expiration" and isinstance(source, SowTopicRecords):
            if source.spec.expiration_enabled != topic.expiration_enabled:
                yield "its records are indexed by their ends from a start on"
        elif change.key not in _DEFERRED_ELEMENTS:
            yield "records, queues and subscriptions depend on it"

    def _topic_reasons(self, topic: TopicSpec, reload: ConfigurationChange) -> Iterator[str]:
        """Yield why a new SOW topic needs a restart."""
        if topic.pattern is None:
            yield from self._name_reasons(topic)
        else:
            yield from self._pattern_reasons(topic, reload)
        if _has_chains(topic, reload):
            yield "chains of ids are read at the start"
        if reload.new.is_journaled(topic.message_type, topic.name):
            yield from self._size_reasons(
                partial(has_records_of, topic),
                "its records are made from the transaction log, of {size} bytes",
            )
        if topic.file_name is not None and self._topics.has_open(topic.file_name):
            yield f"{topic.file_name} is open until the instance stops"
        size = _size_of(topic)
        if size > _MAX_FILE_SIZE:
            yield f"clients would wait while {topic.file_name}, of {size} bytes, is read"

    def _pattern_reasons(self, topic: TopicSpec, reload: ConfigurationChange) -> Iterator[str]:
        """Yield why topics that are in use cannot get records, or lose them, by a Pattern."""
        for other in reload.new.sow:
            if other.ref == topic.ref or other.message_type != topic.message_type:
                continue
            if is_container(other, reload.new.sow):
                yield f"topic {other.name} may have records of the same names"
            elif has_records_of(topic, other.message_type, other.name):
                yield f"its Pattern selects topic {other.name}, which has records of its own"
        count = len(self._engine.topics)
        if count > _MAX_TOPICS:
            yield f"clients would wait while {count} topics in use are compared with its Pattern"
        yield from self._subscription_reasons(partial(has_records_of, topic))

    def _size_reasons(self, is_concerned: Callable[[str, str], bool], reason: str) -> Iterator[str]:
        """Yield a reason if messages of certain topics are read from a large transaction log.

        Args:
            is_concerned: returns whether a topic is one of them, by message type and name.
            reason: the reason, with a place for the size of the log.
        """
        log = self._engine.transaction_log
        size = 0 if log is None else log.journal.estimate_bytes_after(0)
        if size > _MAX_LOG_SIZE:
            yield from self._logged_reasons(is_concerned, reason.format(size=size))

    def _derived_reasons(
        self, topic: ViewSpec | ConflatedTopicSpec, reload: ConfigurationChange
    ) -> Iterator[str]:
        """Yield why a new view or conflated topic needs a restart."""
        yield from self._name_reasons(topic)
        refs = (topic.underlying,) if isinstance(topic, ConflatedTopicSpec) else topic.underlying
        found = map(self._engine.sow_registry.find_configured, refs)
        sources = [source for source in found if source is not None]
        if any(isinstance(one, QueueSpec) and one.ref in refs for one in reload.new.sow):
            yield "views of queues are made at the start"
        if any(one.ref in refs and is_container(one, reload.new.sow) for one in reload.new.sow):
            yield "copies of the topics of a Pattern may be in use"
        count = sum(len(source.table) for source in sources)
        if count > _MAX_RECORDS:
            yield f"its topics have {count} records, and a reload reads up to {_MAX_RECORDS}"

    def _queue_reasons(self, queue: QueueSpec, reload: ConfigurationChange) -> Iterator[str]:
        """Yield why a new queue needs a restart."""
        name, message_type, engine = queue.name, queue.message_type, self._engine
        if self._services.replication is not None and queue.kind != "LocalQueue":
            yield "other instances share it"
        if _has_expire_action(reload.new, queue):
            yield f"its action {_EXPIRE_TRIGGER} needs it before: add that by the next reload"
        yield from self._name_reasons(queue)
        for subscription in engine.topics.subscriptions_to(message_type, name):
            if subscription.consumer is None and (
                subscription.sink is None or not subscription.selector.is_regex
            ):
                yield "subscriptions that exist would get no messages of the queue"
        if queue.recovery_point not in ("epoch", *END_RECOVERY_POINTS):
            yield "its RecoveryPoint is looked up at the start"
        if queue.recovery_point == "epoch":
            yield from self._size_reasons(
                partial(_concerns, queue), "it is filled from the transaction log, of {size} bytes"
            )
        log = engine.transaction_log
        points = None if log is None else log.journal.read_queue_points()
        if points is not None and any(point.name == name for point in points.points):
            yield "a start reads the state that it had before"

    def _name_reasons(self, topic: SowSpec) -> Iterator[str]:
        """Yield why a new topic cannot take its name while the instance runs."""
        owner = self._engine.sow_registry.find(topic.message_type, topic.name)
        if owner is not None:
            yield f"topic {owner.name} has its records"
        yield from self._subscription_reasons(
            lambda *found: found == (topic.message_type, topic.name)
        )

    def _recording_reasons(
        self, topic: JournaledTopicSpec, reload: ConfigurationChange
    ) -> Iterator[str]:
        """Yield why a new topic of the transaction log needs a restart."""

        def is_concerned(message_type: str, name: str) -> bool:
            covers = topic.covers(message_type, name)
            return covers and not reload.old.is_journaled(message_type, name)

        for stored in reload.old.sow:
            if isinstance(stored, TopicSpec) and is_concerned(stored.message_type, stored.name):
                yield f"the records of topic {stored.name} exist"
        yield from self._logged_reasons(
            is_concerned, "the transaction log has messages of topic {name} from before"
        )
        yield from self._subscription_reasons(is_concerned)

    def _logged_reasons(
        self, is_concerned: Callable[[str, str], bool], reason: str
    ) -> Iterator[str]:
        """Yield a reason if the transaction log has messages of certain topics.

        Args:
            is_concerned: returns whether a topic is one of them, by message type and name.
            reason: the reason, with a place for the name of a topic.
        """
        log = self._engine.transaction_log
        if log is None:
            return
        try:
            for topic in log.journal.known_topics():
                if is_concerned(topic.message_type, topic.name):
                    yield reason.format(name=topic.name)
        except JournalUnreadableError as error:
            yield f"the transaction log may have messages of it: {error}"

    def _subscription_reasons(self, is_concerned: Callable[[str, str], bool]) -> Iterator[str]:
        count = self._engine.topics.count_attachments(is_concerned)
        if count > _MAX_SUBSCRIPTIONS:
            yield f"clients would wait while {count} subscriptions are attached to it"

    def _removal_reasons(
        self, topic: TopicSpec | ViewSpec | ConflatedTopicSpec, reload: ConfigurationChange
    ) -> Iterator[str]:
        """Yield why the removal of a topic needs a restart."""
        engine = self._engine
        source = engine.sow_registry.find_configured(topic.ref)
        if source is None:
            return  # a reload has failed to add it
        if isinstance(topic, TopicSpec) and topic.pattern is not None:
            yield from self._pattern_reasons(topic, reload)
        elif source.is_container:
            yield "copies of the topics of a Pattern may be in use"
        elif any(
            other is not source
            and other.type_name == topic.message_type
            and other.covers_topic(topic.name)
            for other in engine.sow_registry.sources
        ):
            yield "another topic has records under its name"
        in_memory = not isinstance(topic, TopicSpec) or topic.file_name is None
        if in_memory and len(source.table) > _MAX_FREED_RECORDS:
            yield f"clients would wait while the memory of {len(source.table)} records is freed"
        names = [*filter(source.covers_topic, engine.topics.topic_names(topic.message_type))]
        for name in names:
            used = engine.topics.find(topic.message_type, name)
            if isinstance(used, RecordFanout) and used.has_result_sets:
                yield "clients have subscriptions to pages or groups of its records"
        yield from self._subscription_reasons(partial(has_records_of, topic))

    def _queue_removal_reasons(self, spec: QueueSpec) -> Iterator[str]:
        """Yield why the removal of a queue needs a restart."""
        queues = self._engine.topics.queues
        queue = None if queues is None else queues.find(spec.message_type, spec.name)
        if queue is None:
            return  # a reload has failed to add it
        if self._services.replication is not None and spec.kind != "LocalQueue":
            yield "other instances share it"
        if queue.browser.record_topic.has_result_sets:
            yield "clients have subscriptions to pages or groups of its messages"
        if not queue.queue_journal.is_up_to_date:
            yield "the transaction log cannot be written at the moment"
        if queue.core.leased_count > _MAX_LEASES:
            yield f"clients would wait while {queue.core.leased_count} leases end"
        yield from self._subscription_reasons(
            lambda *found: found == (spec.message_type, spec.name)
        )


def _has_expire_action(spec: InstanceSpec, queue: QueueSpec) -> bool:
    """Return whether an action runs for messages that leave a queue."""
    return any(
        use.module == _EXPIRE_TRIGGER and use.options.get("Topic") == queue.name
        for action in spec.actions
        for use in action.triggers
    )


def has_records_of(topic: SowSpec, message_type: str, name: str) -> bool:
    """Return whether a topic has the records of a name."""
    pattern = topic.pattern if isinstance(topic, TopicSpec) else None
    covers = name == topic.name if pattern is None else matches(pattern, name)
    return covers and message_type == topic.message_type


def changed_topic(change: SettingChange) -> TopicSpec | None:
    """Return the new description of a SOW topic of which an element changes; None for none."""
    before, after = change.before, change.after
    if change.kind != "changed" or before is None or after is None:
        return None
    part = after.part
    return part if isinstance(part, TopicSpec) and isinstance(before.part, TopicSpec) else None


def added_part(change: SettingChange) -> object:
    """Return the part of the description that a difference adds; None if it adds none."""
    return change.after.part if change.kind == "added" and change.after is not None else None


def removed_part(change: SettingChange) -> object:
    """Return the part of the description that a difference removes; None if it removes none."""
    return change.before.part if change.kind == "removed" and change.before is not None else None


def _concerns(queue: QueueSpec, message_type: str, name: str) -> bool:
    """Return whether a topic has messages of a queue, or its events of an earlier time."""
    source = select_topics(queue.underlying_topic, literal=not queue.underlying_is_regex)
    return message_type == queue.message_type and (source.matches(name) or name == queue.name)


def _has_chains(topic: TopicSpec, reload: ConfigurationChange) -> bool:
    use = topic.key_generator
    libraries = {module.name: module.library_name for module in reload.new.modules}
    return use is not None and libraries[use.module] == CHAINING


def _size_of(topic: TopicSpec) -> int:
    """Return the size of a topic's file in bytes; 0 if there is none."""
    with suppress(OSError):
        if topic.file_name is not None:
            return Path(topic.file_name).stat().st_size
    return 0
