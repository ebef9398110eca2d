"""What replication remembers from one run to the next: found again at the start, stored meanwhile.

The file `replication.ack` in the journal directory is a shorter way through the log, and through
what other instances would have to be asked; see `server.replication.state`. It is stored about once
a second, when something has changed, and at the close. What it takes into account is on stable
storage before. Where it cannot be stored, that is tried again and again, and everything else goes
on.

It is also where the identity of the log is kept: the first txid that the log ever had, and a random
number. Other instances remember their place in this log by it. It is made anew when the log is
another one, or has lost entries that the file speaks of: then they ask anew what there is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.journal import EVENTS, JournalError, Span
from server.journal.layout import CLIENT, SEQUENCE, TXID, FormatError
from server.links.replication import Recollected
from server.replication import Recent, Recollection, Remembered, pack, unpack
from server.replication.recent import MOST_REMEMBERED
from server.topics.unsettled import Unsettled

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.journal import Journal, Run
    from server.links.replication import Replication
    from server.replication import Had
    from server.topics.transaction_log import TransactionLog

_SECONDS: Final = 1.0
"""Between two looks whether something is to be stored."""
_AT_ONCE: Final = 500
"""Publishers that are looked at in a slice."""
_READ_AT_ONCE: Final = 4096
_MOST_BYTES: Final = 4 << 20


def recollect(journal: Journal, check: Callable[[], None], events: Log) -> Recollected:
    """Find out what there is, from what has been stored, and from the log.

    Args:
        journal: the log, which has been recovered.
        check: called now and then; what it raises ends the start.
        events: told where the log is read from, and why what has been stored is of no use.

    Raises:
        JournalUnreadable: the log cannot be read.
    """
    remembered = _find(journal, events)
    log_id = remembered.log
    began = _began(log_id)
    recent = Recent()
    is_whole = journal.first_txid <= max(remembered.txid + 1, began)
    recollection = Recollection(remembered, recent, is_whole=is_whole)
    start = min([remembered.txid, *remembered.acknowledged.values()])
    start = max(start, remembered.txid - MOST_REMEMBERED, journal.first_txid - 1)
    if remembered.acknowledged:
        lowest = min(remembered.acknowledged.values())
        events.emit("1D-0002", lowest_txid=lowest, last_txid=journal.last_txid)
    # Of what was published before the first entry that is read, the numbers are not known.
    is_cut = start > min(remembered.acknowledged.values(), default=start)
    unsettled = Unsettled()
    cursor = journal.replay(Span(start), kinds=EVENTS)
    while not cursor.is_caught_up:
        check()
        for run in cursor.read_on(_READ_AT_ONCE, _MOST_BYTES).runs():
            recollection.take(run)
            if not run.origin.path:
                _note(unsettled, run, is_cut=is_cut)
    recollection.known.highest = journal.last_sequence
    return Recollected(
        log_id,
        began,
        recollection.known,
        recent,
        unsettled,
        remembered.cursors,
        remembered.acknowledged,
        remembered.logs,
    )


def _note(unsettled: Unsettled, run: Run, *, is_cut: bool) -> None:
    """Take note of the last number of each publisher in a run of the log."""
    rows = [row for row in run.rows if row[SEQUENCE] != row[TXID]]
    first = {row[CLIENT]: row[SEQUENCE] for row in reversed(rows)}
    for client, row in {row[CLIENT]: row for row in rows}.items():
        before = 0 if is_cut else first[client] - 1
        unsettled.note(client, before, row[SEQUENCE], row[TXID], 0)


def _find(journal: Journal, events: Log) -> Remembered:
    """What has been stored, if it is of this log; else nothing but a new identity."""
    oldest = journal.files[0]
    # Where a log begins that journals have been removed of, nothing but the file knows. What was
    # before the first one that is left counts as had: it must not come back.
    began = 1 if oldest.number else oldest.first_txid
    try:
        data = journal.read_replication()
        found = None if data is None else unpack(data)
    except (OSError, FormatError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        events.emit("21-0022", file=journal.replication_file, problem=why)
        found = None
    if (
        found is None
        or not journal.first_txid - 1 <= found.txid <= journal.last_txid
        or (not oldest.number and _began(found.log) != began)
    ):
        return Remembered(f"{began}-{secrets.token_hex(8)}", 0)
    return found


def _began(log_id: str) -> int:
    number = log_id.partition("-")[0]
    return int(number) if number.isdecimal() else 0


class Remembering:
    """Stores what is to be remembered.

    Args:
        replication: has it.
        highest: tells all publishers in the log with their highest numbers.
        log: the transaction log, in whose directory it is stored.
        clock: says when to look.
        events: told when it cannot be stored.
        start: begins work that is done in slices; see `Turns.start`.
    """

    def __init__(
        self,
        replication: Replication,
        highest: Callable[[], Mapping[int, int]],
        log: TransactionLog,
        clock: Clock,
        events: Log,
        start: Callable[[Sliced], None],
    ) -> None:
        self._replication: Final = replication
        self._highest: Final = highest
        self._log: Final = log
        self._clock: Final = clock
        self._events: Final = events
        self._start: Final = start
        self._is_busy = False
        self._problem = ""  # with storing it the last time
        self._next = self._head()  # what is being gathered, but for the publishers
        self._left: Iterator[Had] = iter(())
        self._had: list[Had] = []
        self._stored = Remembered("", 0)  # the same of what has been stored
        self._cancel: Callable[[], None]
        self._done(self._next, self._store(self._all()))
        self._look_later()

    def close(self) -> None:
        """Look no more, and leave behind how it is now."""
        self._cancel()
        self._log.journal.leave_replication(pack(self._all()))

    def _look_later(self) -> None:
        self._cancel = self._clock.call_later(_SECONDS, self._look)

    def _look(self) -> None:
        self._look_later()
        if self._is_busy:
            return
        self._next = self._head()
        if self._next != self._stored:
            self._is_busy = True
            self._left, self._had = self._summary(), []
            self._start(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return "", "replication.ack"

    def step(self) -> bool:
        """Look at some publishers; see `Sliced.step`.

        What comes meanwhile is in the log behind what is taken into account, and is added from
        there a second time, which changes nothing. But it must not be lost, either.
        """
        some = list(islice(self._left, _AT_ONCE))
        self._had += some
        if len(some) == _AT_ONCE:
            return True
        store = partial(self._store, replace(self._next, had=self._had))
        done = partial(self._done, self._next)
        self._log.when_durable(lambda: self._log.do_aside(store, done))
        return False

    def _store(self, remembered: Remembered) -> str:
        """Store it; what it takes into account has been. Returns why that failed."""
        try:
            self._log.journal.store_replication(pack(remembered))
        except JournalError as error:
            return str(error)
        return ""

    def _done(self, head: Remembered, problem: str) -> None:
        if not problem:
            self._stored = head
        elif not self._problem:
            file = self._log.journal.replication_file
            self._events.emit("21-0024", file=file, problem=problem)
        self._problem = problem
        self._is_busy = False

    def _all(self) -> Remembered:
        return replace(self._head(), had=list(self._summary()))

    def _head(self) -> Remembered:
        """What there is but for the publishers."""
        replication = self._replication
        return Remembered(
            replication.log_id,
            self._log.last_txid,
            replication.cursors(),
            {name: one.sender.needed_from - 1 for name, one in replication.destinations.items()},
            logs=replication.identities.remembered(),
        )

    def _summary(self) -> Iterator[Had]:
        return self._replication.known.summary(dict(self._highest()))
