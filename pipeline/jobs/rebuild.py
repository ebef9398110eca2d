"""`amps-pipeline rebuild`: rebuilds a SOW topic or a view from journals.

A topic is rebuilt by the functions that publishes and the recovery of an instance use, with the
keys and indexes of the configuration. So no Spark is needed, and the file is identical to the
server's.

A view has no file: a server computes it from its topics at each start. Its output here are Parquet
files, or records of a topic of a server; Spark computes them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amperage.client.uri import without_passwords
from config_schema.spec import InstanceSpec, TopicSpec, ViewSpec
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.files import new_path, refuse_existing
from pipeline.jobs.view import deliver, find_view, from_journals
from pipeline.journal.log import JournalSnapshot, snapshot
from pipeline.logs import SilentLog
from server.app.wiring.provision import ProvisionError, provision_functions, provision_message_types
from server.app.wiring.provision_sow import TopicOpener
from server.storage.journal import EVENTS, JournalCursor, JournalNotice, JournalTopic, LogSpan
from server.storage.journal.files import FileTable, SourceCache
from server.storage.sow.group_commit import SowCommitter
from server.storage.sow.log_apply import apply_entry_range
from server.storage.sow.store import RecordStoreError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pipeline.jobs.run import JobRun
    from server.storage.sow.topic_records import SowTopicRecords

HELP: Final = "rebuild a SOW topic or a view from journals"
_BATCH_SIZE: Final = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("config", type=Path, help="configuration of the instance")
    parser.add_argument(
        "--topic", required=True, help="Name of the Topic or View in the SOW section"
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--output", type=Path, help="file to create; for a view, a directory of Parquet files"
    )
    target.add_argument(
        "--publish",
        metavar="URI",
        help="publish the records of a view: tcp://host:port/amps/type, to the topic of its name",
    )
    parser.add_argument(
        "--journals", type=Path, help="directory of journals; default: that of the configuration"
    )
    parser.add_argument("--archive", type=Path, help="directory of archived journals")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed; there is no file then.
    """
    spec = read_configuration(str(options.config))
    if any(isinstance(topic, ViewSpec) and topic.name == options.topic for topic in spec.sow):
        _rebuild_view(spec, options, run)
        return
    topic = _topic(spec, options.topic)
    if options.output is None:
        raise PipelineError("--publish: requires a view; give --output, or use the job replay")
    refuse_existing(options.output)
    if spec.transaction_log is not None and not spec.is_journaled(topic.message_type, topic.name):
        raise PipelineError(
            f"--topic={topic.name}: is not in the TransactionLog of the configuration, so that"
            " journals have no entries of it"
        )
    log = snapshot(*_directories(spec, options), spec.name)[0]
    last = max(file.end_txid or 0 for file in log.files) - 1
    total = last + 1 - log.files[0].first_txid
    if run.is_dry:
        run.print_text(f"{topic.name} from {total} entries up to {last}")
        return
    try:
        with new_path(options.output) as file:
            records = _rebuild(spec, replace(topic, file_name=str(file)), log, run)
    except (ProvisionError, RecordStoreError, OSError) as problem:
        raise PipelineError(f"{options.output}: {problem}") from problem
    run.print_text(f"{records} records from {total} entries")


def _rebuild_view(spec: InstanceSpec, options: argparse.Namespace, run: JobRun) -> None:
    view = find_view(spec, options.topic)
    if options.output is not None:
        refuse_existing(options.output)
    directory, archive = _directories(spec, options)
    snapshot(directory, archive, spec.name)
    if run.is_dry:
        target = options.output or without_passwords(options.publish)
        run.print_text(f"{view} from {directory} to {target}")
        return
    records = from_journals(run, spec, view, directory, archive)
    deliver(records, run, options.output, options.publish, view.name)


def _rebuild(spec: InstanceSpec, topic: TopicSpec, log: JournalSnapshot, run: JobRun) -> int:
    """Build the file and return its number of records."""
    log_sink, damage = SilentLog(), list[JournalNotice]()
    committer = SowCommitter(lambda call: call())
    opener = TopicOpener(
        provision_message_types(spec),
        provision_functions(spec, log_sink),
        committer,
        log_sink,
    )
    opened_topic = opener.open(topic, spec.modules)
    first_txid, last = log.files[0].first_txid, max(file.end_txid or 0 for file in log.files) - 1
    progress = run.start_progress("rebuild", last + 1 - first_txid)
    cursor = JournalCursor(
        FileTable(log.files),
        SourceCache(0),
        lambda: last,
        LogSpan(first_txid - 1),
        _wanted(opened_topic.sow),
        EVENTS,
        damage.append,
        log.steps,
    )
    while not cursor.is_caught_up:
        before = cursor.position
        apply_entry_range(opened_topic.sow, cursor.read_raw_range(_BATCH_SIZE))
        progress.add(cursor.position - before)
    progress.end()
    _expire(opened_topic.sow, last)
    records = len(opened_topic.sow.table)
    opened_topic.commit(None)
    committer.wait_for_jobs()
    opened_topic.close()
    if damage:
        raise PipelineError(damage[0].text)
    return records


def _expire(sow: SowTopicRecords, last: int) -> None:
    """Remove expired records, as the server does at its recovery: the log does not record expiry.

    Args:
        sow: the topic.
        last: the last entry of the log.
    """
    now = time.time_ns()
    while sow.expire(now, last) is not None:
        pass


def _wanted(sow: SowTopicRecords) -> Callable[[JournalTopic], bool]:
    def wanted(topic: JournalTopic) -> bool:
        return topic.message_type == sow.type_name and sow.covers_topic(topic.name)

    return wanted


def _topic(spec: InstanceSpec, name: str) -> TopicSpec:
    topics = {topic.name: topic for topic in spec.sow if isinstance(topic, TopicSpec)}
    if name not in topics:
        known = ", ".join(topics) or "none"
        raise PipelineError(f"--topic={name}: the SOW section has no such Topic; it has {known}")
    return topics[name]


def _directories(spec: InstanceSpec, options: argparse.Namespace) -> tuple[Path, Path | None]:
    """Return the directory of the journals, and that of archived ones."""
    configured = spec.transaction_log
    directory, archive = options.journals, options.archive
    if directory is None:
        if configured is None:
            raise PipelineError(f"{options.config}: has no TransactionLog; give --journals")
        directory = Path(configured.journal_directory)
        if archive is None and configured.journal_archive_directory:
            archive = Path(configured.journal_archive_directory)
    return directory, archive
