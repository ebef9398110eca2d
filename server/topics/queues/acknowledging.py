"""What is said of the messages of a queue: that they are done with, given back, or given up.

Source: AMPS User Guide, Acknowledging Messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from server.expressions import to_text
from server.journal import JournalUnavailable
from server.queues.inspection import everything
from server.queues.states import GONE, SENT
from server.topics.queues.matching import Wanted
from server.topics.queues.recording import NOBODY

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.queues import Mark, Queue, Way
    from server.topics.queues.matching import QueueMatching
    from server.topics.queues.recording import Recording
    from server.topics.queues.surroundings import Surroundings

_Thing = TypeVar("_Thing")

_LOOKED_AT_ONCE: Final = 512
"""Messages that a slice looks at."""


class Said(NamedTuple):
    """Who says of messages what became of them.

    Attributes:
        way: what became of them.
        client: the number of the session that says so.
        publisher: its client hash and the number of its command, 0 for none.
        delay: for how many microseconds messages that are given back stay away; None for as long
            as the queue says.
    """

    way: Way
    client: int
    publisher: tuple[int, int] = NOBODY
    delay: int | None = None


class Found(NamedTuple):
    """Some of the messages that are looked for.

    Attributes:
        looked_at: messages that it might have been.
        places: where in the queue those are that it is.
    """

    looked_at: int
    places: Sequence[int]


class Acknowledged(NamedTuple):
    """What an acknowledgement has come to.

    Attributes:
        looked_at: messages that it might have meant.
        matched: messages that it meant.
        done: messages that it took effect on.
    """

    looked_at: int
    matched: int
    done: int


class Acknowledging:
    """Takes acknowledgements for one queue.

    Args:
        core: the queue.
        recording: puts into the log what has happened.
        make_matching: makes what matches filters, given who is told of one that fails.
        on_change: called when messages may have left, or may be delivered again.
        surroundings: what the queue needs of the server.
    """

    def __init__(
        self,
        core: Queue,
        recording: Recording,
        make_matching: Callable[[Callable[[Wanted, Exception], None]], QueueMatching],
        on_change: Callable[[], None],
        surroundings: Surroundings,
    ) -> None:
        self._core: Final = core
        self._recording: Final = recording
        self._make_matching: Final = make_matching
        self._on_change: Final = on_change
        self._surroundings: Final = surroundings

    def acknowledge(self, marks: Sequence[Mark], said: Said) -> Acknowledged:
        """Acknowledge messages by their bookmarks.

        Raises:
            JournalUnavailable: it cannot be recorded now. It takes effect all the same, and may be
                undone by a restart.
        """
        now = self._surroundings.now
        result = self._core.acknowledge(marks, now, said.client, said.way, said.delay)
        self._record(said)
        return Acknowledged(len(marks), len(marks) - len(result.refused), result.done)

    def extend(self, marks: Sequence[Mark], period: int | None, said: Said) -> Acknowledged:
        """Let leases that a client has end later, or earlier.

        Args:
            marks: the bookmarks of the messages.
            period: how long they last from now on, in microseconds; None for as long as those that
                begin now.
            said: who wants it.

        Raises:
            JournalUnavailable: the command's number cannot be recorded now.
        """
        now = self._surroundings.now
        lasts = self._core.settings.lease_period if period is None else period
        done = 0
        if lasts is not None:
            done = self._core.extend(marks, now + lasts, now, said.client).done
        self._record(said)
        return Acknowledged(len(marks), done, done)

    def find_marks(self, marks: Sequence[Mark]) -> Iterator[Found]:
        """Find the messages with some bookmarks that are in the queue, little by little."""
        entries = self._core.ledger.entries
        for some in _batches(iter(marks)):
            there = map(entries.find, some)
            yield Found(
                len(some),
                [
                    one
                    for one in there
                    if one is not None and entries.state(one) not in (GONE, SENT)
                ],
            )

    def find_matching(self, expr: Expr) -> Iterator[Found]:
        """Find the messages that match a filter, whoever has them, little by little.

        Raises:
            UnmatchedError: messages cannot be read at the moment.
            Exception: whatever the filter fails with.
        """
        matching = self._make_matching(_fail)
        matching.add(Wanted(to_text(expr), expr))
        txids = self._core.ledger.entries.txids
        for places in _batches(everything(self._core)):
            matched = matching.match(txids(places))
            found = [place for place, filters in zip(places, matched, strict=True) if filters]
            yield Found(len(places), found)

    def among(self, permitted: Expr, found: Iterator[Found]) -> Iterator[Found]:
        """Leave of messages that are found those that match a filter, and say nothing of others.

        Raises:
            UnmatchedError: messages cannot be read at the moment.
            Exception: whatever the filter fails with.
        """
        matching = self._make_matching(_fail)
        matching.add(Wanted(to_text(permitted), permitted))
        txids = self._core.ledger.entries.txids
        for portion in found:
            matched = matching.match(txids(portion.places)) if portion.places else ()
            left = [
                place for place, filters in zip(portion.places, matched, strict=True) if filters
            ]
            yield Found(len(left), left)

    def find_keys(self, keys: Iterable[str]) -> Iterator[Found]:
        """Find the messages with some SOW keys, little by little."""
        numbers = {int(key) for key in keys if key.isascii() and key.isdigit()}
        sow_key = self._core.ledger.entries.sow_key
        for places in _batches(everything(self._core)):
            found = [place for place in places if sow_key(place) in numbers]
            yield Found(len(found), found)

    def acknowledge_places(self, places: Sequence[int], said: Said) -> int:
        """Acknowledge messages that have been found.

        Returns:
            How many it took effect on.

        Raises:
            JournalUnavailable: as for `acknowledge`.
        """
        now = self._surroundings.now
        result = self._core.acknowledge_places(places, now, said.client, said.way, said.delay)
        self._record(said)
        return result.done

    @property
    def is_log_crowded(self) -> bool:
        """Whether more than enough waits to be written to the log."""
        journal = self._surroundings.log.journal
        return journal.is_crowded and journal.refusal is None

    def _record(self, said: Said) -> None:
        self._recording.write(said.publisher)
        self._on_change()
        if not self._recording.is_up_to_date:
            raise JournalUnavailable("the transaction log takes nothing at the moment")


def _batches(things: Iterator[_Thing]) -> Iterator[Sequence[_Thing]]:
    """As many at a time as are looked at in a slice."""
    while batch := list(islice(things, _LOOKED_AT_ONCE)):
        yield batch


def _fail(_: Wanted, error: Exception) -> None:
    raise error
