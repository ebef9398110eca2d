"""`amps-pipeline replay`: publishes journals, or an export of them, to a server again.

Messages of one type are published in the order in which they were recorded, instance by instance.
Each instance and type has a connection of its own, with a client name that `replay_sender` chooses,
so an instance waits until the server has persisted the messages of the one before. Their sequence
numbers are the numbers of their entries. A replay that resumes after an interruption sends a few
messages again; the server drops them as duplicates if the topic is in its transaction log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from amperage.client import ClientError
from amperage.client.uri import ServerUri, parse_uri, without_passwords
from pipeline.errors import PipelineError
from pipeline.files import JobState, read_state, store
from pipeline.jobs.sources import add_source, source_of
from pipeline.journal.log import snapshot
from pipeline.journal.marks import UNKNOWN, check_place, entry_mark

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.entries import EntrySource
    from pipeline.jobs.replay_sender import ReplaySender
    from pipeline.jobs.run import JobRun, ProgressBar

HELP: Final = "publish journals, or an export of them, to a server again"

_COLUMNS: Final = (
    "body",
    "message_type",
    "topic",
    "command",
    "instance",
    "txid",
    "sow_key",
    "correlation_id",
    "expiration",
)
_BATCH_SIZE: Final = 1000
"""Messages per flush, which waits until the server has persisted them."""

_SEND_INTERVAL_S: Final = 0.05
"""Seconds: with a rate limit, the messages of this interval are sent together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    add_source(parser)
    parser.add_argument("server", help="URI of the server, such as tcp://localhost:9007/amps/json")
    parser.add_argument("--rate", type=float, default=0.0, help="maximum messages per second")
    parser.add_argument("--bookmark", default="", help="bookmark or range to replay")
    parser.add_argument("--filter", default="", help="content filter")
    parser.add_argument("--state", type=Path, help="file for the progress, to resume later")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed, or some messages were refused.
    """
    if options.rate < 0:
        raise PipelineError(
            f"--rate={options.rate:g}: expected messages per second, 0 for no limit"
        )
    source = source_of(options, bookmark=options.bookmark, filter=options.filter)
    state = _state(options)
    try:
        uri = parse_uri(options.server)
    except ClientError as problem:
        raise PipelineError(f"server: {problem}") from None
    source.require_topic()
    if not source.is_export:
        _check_places(source, state)
    total = _count(source, state, run, uri)
    if run.is_dry:
        run.print_text(f"{total} entries to {uri}")
        return
    progress = run.start_progress("replay", total)
    try:
        with _Senders(uri, f"amps-pipeline-{state.id}") as senders:
            frame = _entries(source, state, run, _COLUMNS)
            _Replay(options, source, state, progress).publish(senders, frame)
            refused, first_refusal = senders.refusals()
    except ClientError as problem:
        raise PipelineError(
            f"{uri}: after {progress.done_count} of {total} messages: {problem}"
        ) from problem
    finally:
        progress.end()
    if refused:
        raise PipelineError(
            f"{uri}: the server refused {refused} of {progress.done_count} messages and accepted"
            f" all others; the first: {first_refusal}"
        )
    run.print_text(f"{progress.done_count} entries replayed")


def _check_places(source: EntrySource, state: JobState) -> None:
    """Check that the journals still have the last entries that an earlier run sent.

    Raises:
        PipelineError: they do not, or cannot be read.
    """
    for log in snapshot(source.path, source.archive):
        reached = state.reached.get(log.instance)
        if reached is not None:
            mark = state.marks.get(log.instance, UNKNOWN)
            advice = "use another file for --state, which sends everything again"
            check_place(log, reached, mark, source.archive, "the replay", advice)


def _count(source: EntrySource, state: JobState, run: JobRun, uri: ServerUri) -> int:
    """Return the number of entries to send.

    Raises:
        PipelineError: some have another message type than the URI of the server.
    """
    names = ("message_type", "topic", "command", "instance", "txid")
    groups = _entries(source, state, run, names).groupBy("message_type", "topic").count().collect()
    for group in groups:
        if uri.message_type not in (None, group.message_type):
            raise PipelineError(
                f"{uri}: is for messages of the type {uri.message_type}, and those of"
                f" {group.topic!r} are {group.message_type}: give a --topic, or omit the type in"
                " the URI, for all types"
            )
    return sum(int(group["count"]) for group in groups)


def _entries(source: EntrySource, state: JobState, run: JobRun, names: Sequence[str]) -> DataFrame:
    """Return the entries still to be sent, in order."""
    from pyspark.sql import functions as F

    frame = source.entries(run.spark(), *names)
    for instance, txid in state.reached.items():
        frame = frame.where((F.col("instance") != instance) | (F.col("txid") > txid))
    return frame.orderBy("instance", "txid") if source.is_export else frame


class _Senders(ExitStack):
    """The senders, one for each instance that entries come from and each message type.

    Args:
        uri: the server; its message type is ignored.
        name: the prefix of the client names.
    """

    def __init__(self, uri: ServerUri, name: str) -> None:
        super().__init__()
        self._uri = uri
        self._name = name
        self._senders: dict[tuple[str, str], ReplaySender] = {}
        self._instance: str | None = None

    def refusals(self) -> tuple[int, str]:
        """Return the number of refused entries, and the first of them with the reason."""
        senders = [sender for sender in self._senders.values() if sender.refused_count]
        if not senders:
            return 0, ""
        return sum(sender.refused_count for sender in senders), senders[0].first_refusal

    def send(self, row: Any) -> None:
        """Send an entry, once the entries of the instance before are persisted."""
        if row.instance != self._instance:
            self.flush()
            self._instance = row.instance
        self._sender_of(row).send(row)

    def _sender_of(self, row: Any) -> ReplaySender:
        from pipeline.jobs.replay_sender import ReplaySender  # imports modules that import Spark

        key = row.instance, row.message_type
        sender = self._senders.get(key)
        if sender is None:
            uri = replace(self._uri, message_type=row.message_type)
            sender = self.enter_context(ReplaySender(uri, "-".join((self._name, *key))))
            self._senders[key] = sender
        return sender

    def flush(self) -> None:
        """Wait until everything is on stable storage."""
        for sender in self._senders.values():
            sender.flush()


class _Replay:
    """Publishes entries at a rate, and stores its progress."""

    def __init__(
        self,
        options: argparse.Namespace,
        source: EntrySource,
        state: JobState,
        progress: ProgressBar,
    ) -> None:
        self._source = source
        self._path: Path | None = options.state
        self._rate: float = options.rate
        self._state = state
        self._progress = progress
        self._started_s = time.monotonic()

    def publish(self, senders: _Senders, frame: DataFrame) -> None:
        self._state.marks = {}  # computing a mark reads a file, so this is done once, at the end
        try:
            self._publish_all(senders, frame)
        finally:
            with suppress(PipelineError):  # the journals may be gone by now
                self._state.marks = self._entry_marks()
            self._store_state()

    def _entry_marks(self) -> dict[str, str]:
        """Return the marks of the last entries sent; an export has none."""
        if self._path is None or self._source.is_export:
            return {}
        archive = self._source.archive
        return {
            log.instance: entry_mark(log, self._state.reached[log.instance], archive)
            for log in snapshot(self._source.path, archive)
            if log.instance in self._state.reached
        }

    def _publish_all(self, senders: _Senders, frame: DataFrame) -> None:
        self._store_state()  # before the first message: the client names are derived from the state
        pending: list[Any] = []
        step = (
            min(_BATCH_SIZE, max(int(self._rate * _SEND_INTERVAL_S), 1))
            if self._rate
            else _BATCH_SIZE
        )
        for row in frame.toLocalIterator(prefetchPartitions=True):
            pending.append(row)
            if len(pending) >= step:
                self._send_rows(senders, pending)
                pending = []
        if pending:
            self._send_rows(senders, pending)

    def _send_rows(self, senders: _Senders, rows: list[Any]) -> None:
        if self._rate:
            due = self._started_s + self._progress.done_count / self._rate
            time.sleep(max(due - time.monotonic(), 0))
        for row in rows:
            senders.send(row)
        senders.flush()
        self._state.reached |= {row.instance: row.txid for row in rows}
        self._store_state()
        self._progress.add(len(rows))

    def _store_state(self) -> None:
        if self._path is None:
            return
        try:
            store(self._path, msgspec.json.encode(self._state))
        except OSError as problem:
            raise PipelineError(f"--state={self._path}: {problem.strerror or problem}") from None


def _state(options: argparse.Namespace) -> JobState:
    server = without_passwords(options.server)
    source = f"{options.source.resolve()} topic={options.topic} to {server}"
    state = None if options.state is None else read_state(options.state)
    if state is None:
        return JobState("replay", uuid.uuid4().hex, source)
    if without_passwords(state.source) != source or state.job != "replay":
        raise PipelineError(
            f"{options.state}: belongs to the job {state.job} of"
            f" {without_passwords(state.source)}; use another file"
        )
    return state
