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
        replaced_page: the page that the client had before, None if there was none. It has ended.
        on_inherited: called with the records that the client has from there.
        topic_matches: the number of records of the topic; None if the client must not know it.

    Attributes:
        matches: the number of records that match, when all have been found.
        page_keys: the SOW keys of the page's records, in order; none before all have been found.
    """

    def __init__(
        self,
        page: Page,
        scan: RecordScan | None,
        replaced_page: Page | None,
        on_inherited: Callable[[Record], None] | None,
        topic_matches: int | None,
    ) -> None:
        self._topic_matches: Final = topic_matches
        self.matches = 0
        self._page: Final = page
        self._scan: Final = scan
        self._replaced_page: Final = replaced_page
        self._on_inherited: Final = on_inherited
        self.page_keys: Mapping[str, None] = {}
        if scan is None:
            self._cut_page()
        self._slices: Final[Generator[list[Record], None, None]] = self._run()

    @property
    def topic_matches(self) -> int:
        """The number of records tested."""
        return self.matches if self._topic_matches is None else self._topic_matches

    def __iter__(self) -> Iterator[list[Record]]:
        """Return the remaining slices of work; each yields records, perhaps none."""
        return self._slices

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._slices.close()
        if self._scan is not None:
            self._scan.close()

    def _run(self) -> Generator[list[Record], None, None]:
        page = self._page
        inherited_keys = self._inherit_records()
        if self._scan is not None:
            for records in self._scan:
                for chunk in split_into_chunks(records, _BATCH_SIZE):
                    if page.has_ended:
                        return
                    page.result_set.fill(chunk)
                    yield []
            page.result_set.finish_fill()
            self._cut_page()
            while page.result_set.catch_up(_BATCH_SIZE):
                yield []
        yield from self._read_records([key for key in self.page_keys if key not in inherited_keys])
        page.go_live()

    def _cut_page(self) -> None:
        self.page_keys = dict.fromkeys(self._page.cut_page())
        self.matches = len(self._page.result_set)

    def _inherit_records(self) -> set[str]:
        """Pass the client's records to the page; return the keys that need not be sent again.

        The query of the previous page has ended by now. If it was cut short, the records sent may
        be out of date, and no keys are returned.
        """
        replaced_page, page = self._replaced_page, self._page
        if replaced_page is None:
            return set()
        page.inherit_records(replaced_page)
        if self._on_inherited is not None:
            for key in replaced_page.client_keys:
                record = page.client_state(key)
                if record is not None:
                    self._on_inherited(record)
        return replaced_page.client_keys if replaced_page.is_live else set()

    def _read_records(self, keys: list[str]) -> Iterator[list[Record]]:
        page = self._page
        for start in range(0, len(keys), _BATCH_SIZE):
            if page.has_ended:  # by a replacement, which continues from the records sent
                page.record_unsent(keys[start:])
                return
            chunk = keys[start : start + _BATCH_SIZE]
            page.record_sent(chunk)
            yield [record for record in map(page.state_at_cut, chunk) if record is not None]
