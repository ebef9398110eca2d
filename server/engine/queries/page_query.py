"""The first records of a page, as the results of a query.

If the result set is not known yet, it is filled first, by a query for all records that match. Then
the page is cut, and its records are sent in their order and as they were when the command arrived.
If a page replaces another one, the client gets only the records that it does not have. After the
last record, it gets the changes of the meantime, and notices of the records to drop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from server.util.task import split_into_chunks

if TYPE_CHECKING:
    from server.storage.sow.records import Record
    from server.topics.subscriptions.paging.page import Page

_BATCH_SIZE: Final = 200
"""Records that are ordered or read, or changes that are applied, in a time slice."""


class RecordScan(Protocol):
    """Finds records in slices."""

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Yield the slices; some may be empty."""

    def close(self) -> None:
        """End the scan; harmless if it has ended."""


class PageQuery:
    """A query for the records of a page: each step does a slice of the work.

    Args:
        page: the page, held back until now; it is released at the end.
        scan: finds the records that match, to fill the page's result set; None if it is complete.
        replaced: the page that the client had before, None if there was none. It has ended.
        inherited: called with the records that the client has from there.
        topic_matches: the number of records of the topic; None if the client must not know it.

    Attributes:
        matches: the number of records that match, when all have been found.
        cut: the SOW keys of the page's records, in order; none before all have been found.
    """

    def __init__(
        self,
        page: Page,
        scan: RecordScan | None,
        replaced: Page | None,
        inherited: Callable[[Record], None] | None,
        topic_matches: int | None,
    ) -> None:
        self._topic_matches: Final = topic_matches
        self.matches = 0
        self._page: Final = page
        self._scan: Final = scan
        self._replaced: Final = replaced
        self._inherited: Final = inherited
        self.cut: Mapping[str, None] = {}
        if scan is None:
            self._cut_page()
        self._steps: Final[Generator[list[Record], None, None]] = self._run()

    @property
    def topic_matches(self) -> int:
        """The number of records tested."""
        return self.matches if self._topic_matches is None else self._topic_matches

    def __iter__(self) -> Iterator[list[Record]]:
        """Return the remaining slices of work; each yields records, perhaps none."""
        return self._steps

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._steps.close()
        if self._scan is not None:
            self._scan.close()

    def _run(self) -> Generator[list[Record], None, None]:
        page = self._page
        known = self._take_over()
        if self._scan is not None:
            for records in self._scan:
                for some in split_into_chunks(records, _BATCH_SIZE):
                    if page.has_ended:
                        return
                    page.results.fill(some)
                    yield []
            page.results.filled()
            self._cut_page()
            while page.results.catch_up(_BATCH_SIZE):
                yield []
        yield from self._records([key for key in self.cut if key not in known])
        page.release()

    def _cut_page(self) -> None:
        self.cut = dict.fromkeys(self._page.cut())
        self.matches = len(self._page.results)

    def _take_over(self) -> set[str]:
        """Pass the client's records to the page; return the keys that need not be sent again.

        The query of the previous page has ended by now. If it was cut short, the records sent may
        be out of date, and no keys are returned.
        """
        replaced, page = self._replaced, self._page
        if replaced is None:
            return set()
        page.inherit(replaced)
        if self._inherited is not None:
            for key in replaced.keys:
                record = page.known(key)
                if record is not None:
                    self._inherited(record)
        return replaced.keys if replaced.is_live else set()

    def _records(self, keys: list[str]) -> Iterator[list[Record]]:
        page = self._page
        for start in range(0, len(keys), _BATCH_SIZE):
            if page.has_ended:  # by a replacement, which continues from the records sent
                page.unsent(keys[start:])
                return
            chunk = keys[start : start + _BATCH_SIZE]
            page.sent(chunk)
            yield [record for record in map(page.state, chunk) if record is not None]
