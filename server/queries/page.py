"""The first records of a page, as the results of a query.

If the result set is not known yet, it is filled first, by a query for all records that match. Then
the page is cut, and its records are given in their order and as they were when the command came. A
client whose page is replaced by another one is given only what it does not have; when the last
record has been given, it is told what has changed meanwhile, and what it is to forget.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from server.base.slices import portions

if TYPE_CHECKING:
    from server.sow.records import Record
    from server.subscriptions.page import Page

_AT_ONCE: Final = 200
"""Records that are put in order or read, or changes that are made good, in a slice."""


class Scan(Protocol):
    """Finds records in slices."""

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """The slices; some may be empty."""

    def close(self) -> None:
        """End it; harmless if it has ended."""


class PageQuery:
    """A query for the records of a page: each step does a slice of the work.

    Args:
        page: the page, held back until now; it is released in the end.
        scan: finds the records that match, to fill the page's result set; None if it is complete.
        replaced: the page that the client had before, None if there was none. It has ended.
        inherited: told of the records that the client has from there.
        topic_matches: the records of the topic; None if the client is not to know how many there
            are.

    Attributes:
        matches: the records that match, when all have been found.
        cut: the SOW keys of the page's records, in order; none before all have been found.
    """

    def __init__(
        self,
        page: Page,
        scan: Scan | None,
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
        """The records that were there to be tested."""
        return self.matches if self._topic_matches is None else self._topic_matches

    def __iter__(self) -> Iterator[list[Record]]:
        """The slices of work that are left; each gives records, perhaps none."""
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
                for some in portions(records, _AT_ONCE):
                    if page.has_ended:
                        return
                    page.results.fill(some)
                    yield []
            page.results.filled()
            self._cut_page()
            while page.results.catch_up(_AT_ONCE):
                yield []
        yield from self._records([key for key in self.cut if key not in known])
        page.release()

    def _cut_page(self) -> None:
        self.cut = dict.fromkeys(self._page.cut())
        self.matches = len(self._page.results)

    def _take_over(self) -> set[str]:
        """Let the page know what its client has; what of it is as it should be need not be sent.

        The query of the page before has ended by now. If it was cut short, what has been sent may
        be out of date.
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
        for start in range(0, len(keys), _AT_ONCE):
            if page.has_ended:  # by a replacement, which goes on from what has been sent
                page.unsent(keys[start:])
                return
            chunk = keys[start : start + _AT_ONCE]
            page.sent(chunk)
            yield [record for record in map(page.state, chunk) if record is not None]
