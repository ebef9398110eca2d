"""Plans the partitions of files to read for a query of a directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from pipeline.errors import JournalDamageError, option_error
from pipeline.journal.columns import COMMANDS
from pipeline.journal.log import JournalSnapshot, open_journal, snapshot
from pipeline.journal.options import JournalOptions
from pipeline.journal.partitions import JournalNames, JournalPartition
from pipeline.journal.predicates import ColumnPredicate
from server.expressions.topic_names import select_topics
from server.storage.journal import BookmarkError, LogSpan, parse_bookmark
from server.storage.journal.files import FileTable, JournalFile, SourceCache
from server.storage.journal.format.layout import RECORD_SIZE
from server.storage.journal.format.records import FileDefinitions, columns
from server.storage.journal.read.bookmarks import resolve_bookmark
from server.storage.journal.read.lookup import EntryLookup

_NO_CACHE: Final = 0
_EVERYTHING: Final = LogSpan(0)


class PlannedLog:
    """The journals of one instance, with lookup of entries by bookmark and time.

    Args:
        log: the files.
    """

    def __init__(self, log: JournalSnapshot) -> None:
        files = log.files
        ends = [file.end_txid for file in files if file.end_txid is not None]
        self.first_txid = files[0].first_txid
        self.last_txid = max(ends) - 1
        lookup = EntryLookup(
            FileTable(files), SourceCache(_NO_CACHE), lambda: self.last_txid, log.steps
        )
        self.find = lookup.find
        self.find_damaged_entry = lookup.find_damaged_entry
        self.first_since = lookup.first_since
        self._has_steps = len(log.steps) > 0

    def is_log_position(self, client: int) -> bool:  # noqa: ARG002 - see `JournalSnapshot`
        """Return False: files do not contain the name of the log."""
        return False

    def last_common_txid(self, client: int, sequence: int) -> int | None:  # noqa: ARG002 - see `JournalSnapshot`
        """Return None: a bookmark that is not in the log is refused."""
        return None

    def span(self, bookmark: str) -> LogSpan:
        """Return the part of the log that a bookmark selects.

        Raises:
            PipelineError: it is not in the log.
        """
        if not bookmark:
            return _EVERYTHING
        try:
            span = resolve_bookmark(parse_bookmark(bookmark), self, "fail", self.last_txid)
        except BookmarkError as problem:
            raise option_error("bookmark", bookmark, str(problem)) from problem
        return self._by_txids(span) if self._has_steps else span

    def _by_txids(self, span: LogSpan) -> LogSpan:
        """Return a part of the log without times, because the times of entries do not ascend."""
        if span.end_timestamp is None:
            return replace(span, begin_timestamp=0)
        last = self.first_since(span.end_timestamp) - 1
        return replace(span, begin_timestamp=0, last_txid=last, end_timestamp=None)


def plan(options: JournalOptions, predicates: Sequence[ColumnPredicate]) -> list[JournalPartition]:
    """Plan the partitions to read.

    Args:
        options: the options of the read.
        predicates: predicates of entries; only predicates that exclude whole files are used.

    Returns:
        Partitions in the order of the log, instance by instance.

    Raises:
        PipelineError: the journals are missing, or cannot be read.
    """
    return [
        partition
        for log in snapshot(options.path, options.archive, options.instance)
        for partition in plan_log(log, options, predicates, PlannedLog(log).span(options.bookmark))
    ]


def message_types(options: JournalOptions) -> set[str]:
    """Return the message types of the topics to read."""
    return {
        kind for partition in plan(options, ()) for kind in partition.names.message_types.values()
    }


def topics_of(directory: Path, archive: Path | None) -> Iterator[str]:
    """Yield the names of the topics in journals, some more than once.

    Args:
        directory: a directory of journal files.
        archive: the directory of archived journals.

    Raises:
        PipelineError: the journals are missing, or cannot be read.
    """
    options = JournalOptions(directory, archive)
    for log in snapshot(directory, archive):
        for file in log.files:
            names = _names(file, options, 0, _count(file))
            yield from (topic.name for number, topic in names.topics.items() if number)


def plan_log(
    log: JournalSnapshot,
    options: JournalOptions,
    predicates: Iterable[ColumnPredicate],
    span: LogSpan,
) -> Iterator[JournalPartition]:
    """Yield the partitions of one instance's journals.

    Args:
        log: the journals.
        options: the options of the read.
        predicates: the predicates of entries.
        span: the part of the log to read.
    """
    bounds = tuple(_bounds(span))
    tests = (*predicates, *bounds)
    if not all(test.test()(log.instance) for test in tests if test.column == "instance"):
        return
    for file in log.files:
        start, stop = _numbers(file, span)
        ascends = not log.steps.has_step_between(file.first_txid, file.end_txid or file.first_txid)
        if start >= stop or not _may_have(file, start, stop, tests, ascends=ascends):
            continue
        names = _wanted(log.instance, _names(file, options, start, stop), options, tests)
        if not names.topics:
            continue
        has_extras = file.seal is None or file.seal.extras_count > 0
        make_partition = partial(
            JournalPartition, file.path, options.archive, file.first_txid, _count(file)
        )
        for first, last in _cuts(file, start, stop, options.piece_size):
            yield make_partition(first, last, file.size, names, has_extras, bounds)


def _bounds(span: LogSpan) -> Iterator[ColumnPredicate]:
    if span.begin_timestamp:
        yield ColumnPredicate("timestamp", "ge", (span.begin_timestamp,))
    if span.end_timestamp is not None:
        yield ColumnPredicate("timestamp", "lt", (span.end_timestamp,))


def _count(file: JournalFile) -> int:
    return 0 if file.seal is None else file.seal.count


def _numbers(file: JournalFile, span: LogSpan) -> tuple[int, int]:
    """Return the range of numbers of a file's entries in a span: first, and after the last."""
    stop = _count(file)
    if span.last_txid is not None:
        stop = min(stop, span.last_txid + 1 - file.first_txid)
    return max(span.after_txid + 1 - file.first_txid, 0), stop


def _may_have(
    file: JournalFile, start: int, stop: int, tests: Iterable[ColumnPredicate], *, ascends: bool
) -> bool:
    """Return whether a file can have entries that pass all tests, by its ranges."""
    ranges = {"txid": (file.first_txid + start, file.first_txid + stop - 1)}
    if file.seal is not None and ascends:
        ranges["timestamp"] = (file.seal.first_timestamp, file.seal.last_timestamp)
    return all(
        test.can_match_range(*ranges[test.column]) for test in tests if test.column in ranges
    )


def _names(file: JournalFile, options: JournalOptions, start: int, stop: int) -> FileDefinitions:
    index = file.read_index()
    if index is not None:
        return index.definitions
    source = open_journal(file.path, options.archive)
    names = file.read_definitions(source)
    if not options.skips_damaged:
        used = set(np.unique(columns(source, start, stop)["topic"]).tolist())
        if not used <= names.topics.keys():
            raise JournalDamageError(
                f"{file.path}: damaged: entries that define topics cannot be read, and no message"
                " of these topics without them (the option damaged=skip skips these messages)"
            )
    return names


def _wanted(
    instance: str, names: FileDefinitions, options: JournalOptions, tests: Sequence[ColumnPredicate]
) -> JournalNames:
    """Return the names of a file, without unwanted topics."""
    selector = select_topics(options.topic) if options.topic else None
    checks = {
        column: [test.test() for test in tests if test.column == column]
        for column in ("topic", "message_type")
    }
    topics = {
        number: topic
        for number, topic in names.topics.items()
        if number
        and (selector is None or selector.matches(topic.name))
        and options.message_type in ("", topic.message_type)
        and all(test(topic.name) for test in checks["topic"])
        and all(test(topic.message_type) for test in checks["message_type"])
    }
    return JournalNames(
        instance,
        {number: topic.name for number, topic in topics.items()},
        {number: topic.message_type for number, topic in topics.items()},
        {number: origin.auth_id for number, origin in names.origins.items() if origin.auth_id},
        frozenset(int(COMMANDS[name]) for name in options.commands),
    )


def _cuts(file: JournalFile, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of entries of about a size in bytes."""
    if file.path.suffix == ".gz":
        yield start, stop
        return
    bodies = 0 if file.seal is None else file.seal.bodies_end
    each = bodies / max(_count(file), 1) + RECORD_SIZE
    count = max(round((stop - start) * each / size), 1)
    borders = [start + (stop - start) * number // count for number in range(count + 1)]
    yield from ((first, last) for first, last in pairwise(borders) if last > first)
