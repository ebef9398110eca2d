"""Opens the transaction log, and recovers the records from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.app.wiring.provision import ProvisionError
from server.storage.journal import (
    Journal,
    JournalError,
    JournalEvent,
    JournalSettings,
    JournalUnreadableError,
)
from server.storage.sow.recovery import SowRollback, recover_records
from server.storage.sow.store import RecordStoreError
from server.topics.transaction_log import TransactionLog
from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.worker_thread import WorkerThread

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec, TransactionLogSpec
    from server.engine.engine import Engine
    from server.storage.journal import JournalNotice

_MESSAGE_IDS: Final = {
    JournalEvent.TORN_TAIL: "1D-0003",
    JournalEvent.DAMAGED: "1D-0004",
    JournalEvent.WRITE_FAILED: "1D-0005",
    JournalEvent.WRITE_RESUMED: "1D-0006",
    JournalEvent.UPKEEP_FAILED: "1D-0007",
    JournalEvent.ROTATED: "1D-0008",
    JournalEvent.RECOVERED: "1D-0009",
}


def journal_settings(instance: InstanceSpec, spec: TransactionLogSpec) -> JournalSettings:
    """Return the settings of an instance's journal."""
    archive = spec.journal_archive_directory
    return JournalSettings(
        instance.name,
        Path(spec.journal_directory),
        None if archive is None else Path(archive),
        spec.journal_size,
        spec.preallocated_journal_files,
        spec.flush_interval,
        instance.tuning.topic_index_enabled,
        client_expiration=spec.inactive_client_ack_expiration,
        cache_limit=spec.compressed_journal_cache_memory_limit,
    )


def open_journal(
    spec: InstanceSpec,
    log_spec: TransactionLogSpec,
    engine: Engine,
    post: Callable[[Callable[[], None]], None],
) -> TransactionLog:
    """Open the transaction log of an instance; publishes are recorded from now on.

    Args:
        spec: the instance.
        log_spec: its transaction log.
        engine: gets the log.
        post: executes a callback on the engine's thread.

    Raises:
        ProvisionError: the files in its directories are not a log, or cannot be used.
    """
    clock, emit = engine.clock, engine.log.emit

    def log_notice(notice: JournalNotice) -> None:
        emit(_MESSAGE_IDS[notice.event], text=notice.text)
        if notice.event is JournalEvent.DAMAGED and notice.txid:
            post(lambda: log.report_damaged(notice.txid))

    def on_durable(txid: int) -> None:
        post(lambda: log.advance_durable(txid))

    try:
        journal = Journal(
            journal_settings(spec, log_spec),
            lambda: int(clock.now() * MICROSECONDS_PER_SECOND),
            on_durable,
            log_notice,
        )
    except JournalError as error:
        raise ProvisionError(log_spec, f"TransactionLog: {error}") from None
    clock.on_wall_clock_step(journal.record_clock_step)
    if journal.has_unknown_removals:
        emit("1D-0040", path=journal.files[0].path, first_txid=journal.first_txid)
    helper = WorkerThread(post, "journal-lookup")
    log = TransactionLog(journal, log_spec.topics, spec.name, helper)
    engine.use_transaction_log(log)
    return log


def recover(
    spec: TransactionLogSpec,
    transaction_log: TransactionLog,
    engine: Engine,
    settle: Callable[[], None],
    check: Callable[[], None],
) -> None:
    """Recover the records from the log, then begin to write to the log.

    Args:
        spec: the transaction log's configuration.
        transaction_log: the log.
        engine: has the records.
        settle: waits until every requested commit of a store is done.
        check: called between entries; an exception that it raises ends the recovery.

    Raises:
        ProvisionError: a record cannot be stored, or the log not be read.
    """
    topics = [sow for sow in engine.sow_registry.topics if engine.sow_registry.is_journaled(sow)]
    try:
        recover_records(
            transaction_log.journal,
            topics,
            engine.sow_registry.find,
            settle,
            check,
            partial(_log_rollback, engine),
        )
    except (RecordStoreError, JournalUnreadableError) as error:
        raise ProvisionError(spec, f"TransactionLog: not recovered: {error}") from None
    for sow in topics:
        engine.sow_registry.mark_changed(sow)
    transaction_log.journal.start()
    engine.log.emit("1D-0001")


def _log_rollback(engine: Engine, rollback: SowRollback) -> None:
    engine.log.emit(
        "15-0014",
        topic=rollback.sow.spec.name,
        message_type=rollback.sow.type_name,
        first=rollback.first_txid,
        last=rollback.last_txid,
        records=rollback.restored_count,
        past=rollback.dropped_past_count,
    )
    if rollback.unrestored_count:
        engine.log.emit(
            "15-0016",
            topic=rollback.sow.spec.name,
            message_type=rollback.sow.type_name,
            records=rollback.unrestored_count,
        )
