"""The transaction log: its files, and the latency and size of writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from server.statistics.resources import JOURNALS, TRANSACTION_LOG
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import moment_of_us

if TYPE_CHECKING:
    from pathlib import Path

    from server.statistics.schema import Resource, StatisticValue
    from server.storage.journal import Journal
    from server.storage.journal.files import JournalFile
    from server.util.histogram import Histogram

_MAX_HOLDERS: Final = 3
_BAR: Final = 40
"""Characters of the longest bar of a histogram."""


class TransactionLogSource:
    """The log as a whole.

    Args:
        journal: the log; None if there is none.
    """

    resource: Resource = TRANSACTION_LOG

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        journal = self._journal
        if journal is None:
            return
        files = journal.files
        if journal.last_txid < journal.first_txid or not files:
            yield StatisticsEntry("", (), ("", ""))
        else:
            yield StatisticsEntry(
                "", (), (moment_of_us(journal.last_timestamp), moment_of_us(_first(files[0])))
            )


class JournalsSource:
    """Its files.

    Args:
        journal: the log; None if there is none.
        archive: the directory of archived files.
        holders: returns the holders of the log, each with the first txid that it needs, ascending.
    """

    resource: Resource = JOURNALS

    def __init__(
        self,
        journal: Journal | None,
        archive: Path | None,
        holders: Callable[[], Sequence[tuple[int, str]]] = tuple,
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._holders = holders
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        if self._journal is None:
            return
        earlier, self._static_values = self._static_values, {}
        holders = self._holders()
        for file in self._journal.files:
            name = file.name
            static_values = earlier.get(name)
            # A file with another name has been compressed since.
            if static_values is None or static_values[0] != file.path.name:
                static_values = (file.path.name,)
            self._static_values[name] = static_values
            seal = file.seal
            last = self._journal.last_timestamp if seal is None else seal.last_timestamp
            is_archived = self._archive is not None and file.path.parent == self._archive
            is_compressed = file.path.suffix == ".gz"
            yield StatisticsEntry(
                name,
                static_values,
                (
                    _file_holders(file, holders),
                    int(is_archived),
                    int(is_compressed),
                    moment_of_us(last),
                    moment_of_us(_first(file)),
                    file.size,
                ),
            )


class HistogramSource:
    """A distribution.

    Args:
        resource: its resource.
        histogram: its numbers; None if there is none.
    """

    def __init__(self, resource: Resource, histogram: Histogram | None) -> None:
        self.resource = resource
        self._histogram = histogram

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        histogram = self._histogram
        if histogram is None:
            return
        yield StatisticsEntry(
            "", (), (_histogram_text(histogram), histogram.maximum, histogram.minimum or 0)
        )


def _file_holders(file: JournalFile, holders: Sequence[tuple[int, str]]) -> str:
    """Return the holders of a file, from the holders of the log."""
    end_txid = file.end_txid
    if end_txid is None:
        return "being written"
    needing = bisect_left(holders, (end_txid,))
    shown = [holder for _, holder in holders[: min(needing, _MAX_HOLDERS)]]
    if needing > len(shown):
        shown.append(f"{needing - len(shown)} more")
    return ", ".join(shown)


def _first(file: JournalFile) -> int:
    """Return when the first entry of a file was recorded; without entries, when it was created."""
    return file.created if file.seal is None else file.seal.first_timestamp


def _histogram_text(histogram: Histogram) -> str:
    """Return a line for each range that has any numbers: from, to, count, and a bar."""
    counts = list(histogram.counts)
    highest = max(counts)
    lines = []
    for size, count in enumerate(counts):
        if count:
            bar = "*" * max(round(_BAR * count / highest), 1)
            lines.append(f"{1 << size >> 1} - {(1 << size) - 1}: {count} {bar}")
    return "\n".join(lines)
