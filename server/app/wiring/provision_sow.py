"""Opens the SOW topics: files, key generators, indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from server.app.wiring.provision import ProvisionError
from server.storage.journal import JournalUnreadableError
from server.storage.sow.file_store import StoreRecovery, open_store
from server.storage.sow.group_commit import SowCommitter
from server.storage.sow.keys.chain_file import DamagedChainFileError
from server.storage.sow.keys.chain_recovery import recover_chains
from server.storage.sow.keys.chaining import ChainingKeys
from server.storage.sow.keys.errors import KeyModuleError
from server.storage.sow.keys.generators import create_key_generator
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.recovery import first_retained_txid
from server.storage.sow.rekey import rekey_records
from server.storage.sow.slab.slab_file import OtherVersionError
from server.storage.sow.slab.slab_log import not_stable
from server.storage.sow.store import MAX_CHANGE_SEQUENCE, ChainFilePosition, RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords
from server.util.file_lock import FileInUseError

if TYPE_CHECKING:
    from config_schema.spec import ModuleSpec, TopicSpec
    from server.engine.engine import Engine
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.storage.journal import Journal
    from server.storage.sow.keys.key_source import KeySource
    from server.storage.sow.store import RecordStore, StoreCallback
    from server.topics.sow_registry import CommitRequest
    from server.util.log_protocol import ServerLog


_BATCH_SIZE: Final = 1000
"""Records that are read per batch."""


def rekey_all_records(
    topics: Iterable[SowTopicRecords],
    log: ServerLog,
    settle: Callable[[], None],
    check: Callable[[], None],
) -> None:
    """Rekey records if their topics now generate other SOW keys for them.

    Args:
        topics: the topics, recovered.
        log: gets an entry for each topic with records that were rekeyed.
        settle: waits until every requested commit of a store is done.
        check: called between some records; an exception that it raises ends the start.

    Raises:
        ProvisionError: there is no room for a record under its new key, or a record is unreadable.
    """
    for sow in topics:
        try:
            done = rekey_records(sow, settle, check)
        except RecordStoreError as error:
            text = f"SOW topic {sow.name}: SOW keys not computed again: {error}"
            raise ProvisionError(sow.spec, text) from None
        about = {"topic": sow.name, "message_type": sow.type_name}
        if done.moved_count:
            log.emit("15-0032", **about, records=done.moved_count)
        if done.set_aside_count:
            log.emit("15-0017", **about, records=done.set_aside_count)


def recover_all_chains(
    topics: Iterable[OpenTopic],
    journal: Journal | None,
    engine: Engine,
    check: Callable[[], None],
) -> None:
    """Restore ids of chains that the files of chained ids have lost, from messages.

    Args:
        topics: the topics, as they were opened.
        journal: the transaction log, if there is one.
        engine: has the topics.
        check: called between some messages; an exception that it raises ends the start.

    Raises:
        ProvisionError: an id cannot be stored, or the log or a record not be read.
    """
    sow_registry = engine.sow_registry
    for topic in topics:
        sow, chains = topic.sow, topic.chains
        if chains is None:
            continue
        log = journal if sow_registry.is_journaled(sow) else None
        try:
            added = recover_chains(sow, chains, log, sow_registry.find, check)
            if log is not None:
                chains.file.synchronise()
                until = max(log.last_txid, sow.table.store.last_sequence)
                sow.table.store.header.chain_file_position = ChainFilePosition(
                    until, chains.file.size
                )
        except (RecordStoreError, JournalUnreadableError, OSError) as error:
            text = f"SOW topic {sow.name}: chained ids not recovered: {_error_text(error)}"
            raise ProvisionError(sow.spec, text) from None
        if added:
            engine.log.emit(
                "15-0031",
                topic=sow.name,
                message_type=sow.type_name,
                path=chains.file.path,
                ids=added,
                source="the records" if log is None else "the transaction log",
            )


def warn_of_lost_records(topics: Iterable[OpenTopic], journal: Journal, engine: Engine) -> None:
    """Log the topics that are rebuilt from a transaction log without its removed beginning.

    Args:
        topics: the topics, as they were opened; no log entry has been applied to them yet.
        journal: the transaction log.
        engine: has the topics.
    """
    for topic in topics:
        sow = topic.sow
        if not topic.is_file_new or not engine.sow_registry.is_journaled(sow):
            continue
        first_txid = first_retained_txid(sow, journal)
        if first_txid is not None:
            engine.log.emit(
                "15-0123",
                topic=sow.name,
                message_type=sow.type_name,
                path=sow.spec.file_name,
                first_txid=first_txid,
            )


def store_logged_flags(topics: Iterable[SowTopicRecords], engine: Engine) -> None:
    """Store in the files of topics whether their next changes are in the transaction log.

    Changes made while a topic was not in the log cannot have been lost by the log.

    Args:
        topics: the topics, recovered.
        engine: knows which topics are in the log.
    """
    for sow in topics:
        store = sow.table.store
        if not engine.sow_registry.is_journaled(sow):
            store.header.unlogged_until = MAX_CHANGE_SEQUENCE
        elif store.header.unlogged_until == MAX_CHANGE_SEQUENCE:
            store.header.unlogged_until = store.last_sequence


class OpenTopic(NamedTuple):
    """A topic with records, ready for use.

    Attributes:
        sow: the topic.
        commit: requests that everything so far is put on stable storage.
        close: releases its files.
        chains: its key source, if its keys come from chains of ids.
        is_file_new: whether its file was created by this start.
    """

    sow: SowTopicRecords
    commit: CommitRequest
    close: Callable[[], None]
    chains: ChainingKeys | None = None
    is_file_new: bool = False


class TopicOpener:
    """Opens the topics of one instance.

    Args:
        message_types: the message types of the instance, by name.
        functions: the functions that expressions may call.
        committer: the thread that synchronises files.
        log: gets entries about recovery and failures to synchronise.
    """

    def __init__(
        self,
        message_types: Mapping[str, MessageType],
        functions: Functions,
        committer: SowCommitter,
        log: ServerLog,
    ) -> None:
        self._message_types = message_types
        self._functions = functions
        self._committer = committer
        self._log = log

    def open(self, spec: TopicSpec, modules: Sequence[ModuleSpec]) -> OpenTopic:
        """Open one topic, and recover its records.

        Args:
            spec: its description.
            modules: the modules that the configuration loads.

        Raises:
            ProvisionError: a file or module cannot be used.
        """
        message_type = self._message_types[spec.message_type]
        generator = self._make_key_source(spec, message_type, modules)
        outage = _Outage(spec.name, self._log)
        store, recovery = self._open_store(spec, outage)
        sow = SowTopicRecords(spec, message_type, store, self._functions, generator)
        self._log_foreign_records(sow, recovery.topics)
        for _ in sow.table.build_indexes():
            pass
        if isinstance(generator, ChainingKeys):
            chains = _ChainFiles(sow, generator, self._committer, outage)
            self._log_chain_losses(spec, generator)
            return OpenTopic(sow, chains.commit, chains.close, generator, recovery.is_new)
        return OpenTopic(sow, store.commit, store.close, is_file_new=recovery.is_new)

    def _make_key_source(
        self, spec: TopicSpec, message_type: MessageType, modules: Sequence[ModuleSpec]
    ) -> KeySource | None:
        use = spec.key_generator
        if use is None:
            return None
        module = next(module for module in modules if module.name == use.module)
        options: dict[str, Sequence[str]] = {}
        for source in (module.options, use.options):
            options |= {option.name: source.all(option.name) for option in source}
        try:
            return create_key_generator(module.library, spec.name, message_type, options)
        except (KeyModuleError, DamagedChainFileError, FileInUseError, OSError) as error:
            raise ProvisionError(use, f"key generator {use.module}: {_error_text(error)}") from None

    def _open_store(self, spec: TopicSpec, outage: _Outage) -> tuple[RecordStore, StoreRecovery]:
        """Open the store of a topic, and return it with a summary of its recovery."""
        if spec.file_name is None:
            return MemoryStore(), StoreRecovery(0, 0)
        try:
            store, recovery = open_store(
                Path(spec.file_name),
                self._committer,
                outage,
                topic=spec.name,
                pattern=spec.pattern is not None,
                slab_size=spec.slab_size,
                initial_slabs=spec.initial_slab_count,
            )
        except (FileInUseError, OtherVersionError, OSError) as error:
            raise ProvisionError(spec, f"SOW topic {spec.name}: {_error_text(error)}") from None
        about = {"topic": spec.name, "message_type": spec.message_type}
        if recovery.damage is not None:
            self._log.emit("15-0009", **about, damage=recovery.damage, path=recovery.damaged_path)
        if recovery.lost_bytes:
            self._log.emit("15-0010", **about, lost_bytes=recovery.lost_bytes)
        if recovery.blank_file_size is not None:
            self._log.emit("15-0015", **about, path=spec.file_name, size=recovery.blank_file_size)
        self._log.emit("15-0008", **about, records=recovery.records)
        return store, recovery

    def _log_foreign_records(self, sow: SowTopicRecords, topics: Set[str]) -> None:
        """Log records in the file that belong to other topics.

        Args:
            sow: the topic.
            topics: the topics that the file names, also those of deleted records.
        """
        others = {name for name in topics if not sow.covers_topic(name)}
        if not others:
            return
        foreign = [name for name in _topics_of(sow.table.store) if name in others]
        if foreign:
            self._log.emit(
                "15-0018",
                topic=sow.name,
                message_type=sow.type_name,
                path=sow.spec.file_name,
                records=len(foreign),
                other=min(foreign),
            )

    def _log_chain_losses(self, spec: TopicSpec, generator: ChainingKeys) -> None:
        """Log the losses of the file of chained ids."""
        file = generator.file
        about = {"topic": spec.name, "message_type": spec.message_type, "path": file.path}
        if file.damage is not None:
            offset, aside = file.damage
            self._log.emit("15-0030", **about, offset=offset, aside=aside)
        elif file.lost_bytes:
            self._log.emit("15-0029", **about, lost_bytes=file.lost_bytes)


class _ChainFiles:
    """Commits and closes the files of a topic whose keys come from chains of ids.

    The ids are committed first: records must not have keys that cannot be generated again.

    Args:
        sow: the topic.
        generator: its key source.
        committer: the thread that synchronises files.
        outage: notified of failures.
    """

    def __init__(
        self,
        sow: SowTopicRecords,
        generator: ChainingKeys,
        committer: SowCommitter,
        outage: _Outage,
    ) -> None:
        self._store = sow.table.store
        self._file = generator.file
        self._committer = committer
        self._outage = outage

    def commit(self, callback: StoreCallback | None = None) -> None:
        """Request that everything so far is put on stable storage."""
        store = self._store
        stored = ChainFilePosition(store.last_sequence, self._file.size)

        def chains_tried(error: OSError | None) -> None:
            if error is None:
                self._record_stored(stored)
                store.commit(callback)
                return
            self._outage(error)
            if callback is not None:
                callback(not_stable(self._file.path, error))

        self._file.commit(self._committer, chains_tried)

    def close(self) -> None:
        """Put everything on stable storage, and release the files."""
        try:
            self._file.synchronise()
            self._record_stored(ChainFilePosition(self._store.last_sequence, self._file.size))
        except OSError as error:
            self._outage(error)
        self._store.close()
        self._file.close()

    def _record_stored(self, stored: ChainFilePosition) -> None:
        self._store.header.chain_file_position = max(stored, self._store.header.chain_file_position)


class _Outage:
    """Logs once that a topic's files cannot be synchronised, and once that they can be again.

    Args:
        topic: the topic's name.
        log: the log.
    """

    def __init__(self, topic: str, log: ServerLog) -> None:
        self._topic = topic
        self._log = log
        self._is_ongoing = False

    def __call__(self, error: OSError | None) -> None:
        """Record the outcome of a synchronisation: its error, or None for success."""
        if error is not None and not self._is_ongoing:
            self._log.emit("15-0012", topic=self._topic, reason=_error_text(error))
        elif error is None and self._is_ongoing:
            self._log.emit("15-0013", topic=self._topic)
        self._is_ongoing = error is not None


def _topics_of(store: RecordStore) -> Iterator[str]:
    """Yield the topic of each record."""
    rows = (row for _, row in store.identities())
    while batch := list(islice(rows, _BATCH_SIZE)):
        for record in store.read_records(batch):
            yield record.topic


def _error_text(error: Exception) -> str:
    """Return the text of an error: the system's message and the file that it is about."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
