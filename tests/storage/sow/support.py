"""What the tests of the State of the World share: topics, stores, and a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from config_schema.problems import Location
from config_schema.spec.sow import HistorySpec, TopicSpec
from server.expressions import BUILTINS
from server.message_types.base import MessageType
from server.message_types.registry import create
from server.storage.sow.file_store import FileStore, StoreRecovery, open_store
from server.storage.sow.group_commit import SowCommitter
from server.storage.sow.keys.key_source import KeySource
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.query.query import Query, QuerySpec
from server.storage.sow.records import NANOSECONDS, Record, RecordChange
from server.storage.sow.store import RecordStore
from server.storage.sow.topic_records import SowTopicRecords
from server.util.task import EngineTask

SECOND = NANOSECONDS
HERE = Location("test.xml", 1)


def json_type() -> MessageType:
    return create("json", "json", {})


def topic_spec(
    *keys: str,
    name: str = "orders",
    message_type: str = "json",
    key_domain: str | None = None,
    hash_indexes: tuple[tuple[str, ...], ...] = (),
    preprocessing: tuple[str, ...] = (),
    enrichment: tuple[str, ...] = (),
    pattern: str | None = None,
    expiration_enabled: bool = False,
    expiration: int | None = None,
    history: tuple[int, int] | None = None,
) -> TopicSpec:
    return TopicSpec(
        name=name,
        message_type=message_type,
        keys=keys,
        key_domain=name if key_domain is None else key_domain,
        key_generator=None,
        file_name=None,
        durability="transient",
        recovery_point="epoch",
        expiration_enabled=expiration_enabled,
        expiration=expiration,
        slab_size=1 << 20,
        initial_slab_count=1,
        expected_key_count_hint=None,
        hash_indexes=hash_indexes,
        indexes=(),
        history=HistorySpec(*history, HERE) if history else None,
        preprocessing=preprocessing,
        enrichment=enrichment,
        pattern=pattern,
        name_has_regex_characters=False,
        location=HERE,
    )


def make_topic(
    spec: TopicSpec, store: RecordStore | None = None, generator: KeySource | None = None
) -> SowTopicRecords:
    return SowTopicRecords(
        spec,
        create(spec.message_type, spec.message_type, {}),
        MemoryStore() if store is None else store,
        BUILTINS,
        generator,
    )


class Clerk:
    """Publishes JSON to a topic, numbering its commands; the time stands unless it is set."""

    def __init__(self, topic: SowTopicRecords) -> None:
        self.topic = topic
        self.now = 1_000 * SECOND
        self.sequence = topic.table.store.last_sequence

    def publish(
        self,
        message: object,
        *,
        topic: str | None = None,
        key: str | None = None,
        delta: bool = False,
        expiration: int | None = None,
    ) -> RecordChange:
        self.sequence += 1
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        record = self.topic.prepare_record(
            body,
            self.now,
            self.sequence,
            topic=topic,
            key=key,
            delta=delta,
            expiration=expiration,
        )
        return self.topic.apply(record)

    def delete(self, *records: Record) -> list[RecordChange]:
        self.sequence += 1
        changes = [self.topic.remove(record, self.sequence, self.now) for record in records]
        return [change for change in changes if change is not None]

    def query(self, spec: QuerySpec) -> Query:
        return self.topic.query(spec, self.now)

    def bodies(self, spec: QuerySpec) -> list[object]:
        return [json.loads(record.body) for record in run(self.query(spec))]

    def all(self) -> list[object]:
        return self.bodies(QuerySpec())


def run(query: Query) -> list[Record]:
    return [record for piece in query for record in piece]


class Disk:
    """A directory with stores; calls back only when it is told to."""

    def __init__(
        self,
        directory: Path,
        synchronise: Callable[[int], None] = os.fdatasync,
        **how: Callable[[EngineTask], None],
    ) -> None:
        self.directory = directory
        self._calls: list[Callable[[], None]] = []
        self.failures: list[OSError] = []
        """Why files could not be put on stable storage."""
        self._synchronise = synchronise
        self.committer = SowCommitter(self._calls.append, synchronise, **how)

    def open(
        self,
        *,
        pattern: bool = False,
        slab_size: int = 1 << 16,
        name: str = "t.sow",
        topic: str = "t",
    ) -> tuple[FileStore, StoreRecovery]:
        return open_store(
            self.directory / name,
            self.committer,
            self._take,
            topic=topic,
            pattern=pattern,
            slab_size=slab_size,
        )

    def _take(self, failure: OSError | None) -> None:
        if failure is not None:
            self.failures.append(failure)

    def settle(self) -> None:
        """Let all commits asked for complete, and tell those who wait for them."""
        self.committer.wait_for_jobs()
        while self._calls:
            self._calls.pop(0)()

    def close(self) -> None:
        self.committer.close()
