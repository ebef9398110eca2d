"""The transaction log as topics, commands and replays see it: on the engine's thread.

    a publish:     append -> txid ... the committer's thread writes and syncs ... reached(txid)
    what waits:    acks, in the order of txids; replays that have read everything there is

The journal's own threads never come here. What they have made durable is posted to the engine's
thread, and only from then on counts as durable, so that everything here has one order.

What is durable is on stable storage of this machine; what is *settled* is so, too, at all other
instances that have to acknowledge it (`Settlement`). Publishers are told what is settled. Without
such instances both are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from amperage.wire.bookmarks import client_hash
from server.expressions.topic_names import AUDIT
from server.journal import (
    EVENTS,
    BookmarkError,
    JournalUnavailable,
    JournalUnreadable,
    Kind,
    Span,
)
from server.journal.clients import server_made_identity
from server.journal.errors import reason
from server.topics.refusals import Refusals, RefusedBeforeError

if TYPE_CHECKING:
    from pathlib import Path

    from config_schema.spec import JournaledTopicSpec
    from server.base.helper_thread import HelperThread
    from server.base.slices import Sliced
    from server.journal import BookmarkRequest, Journal, NotFound, Topic
    from server.topics.notes import Notes

_T = TypeVar("_T")

Place: TypeAlias = Span | BookmarkError
"""A part of the log, or why there is none."""

_RESERVED: Final = "/AMPS/"
"""How topics of the server's own begin, of which only that of the audit trail can be recorded."""
_RELEASED_AT_ONCE: Final = 128
"""Of those who wait for stable storage; each has an ack or so to send."""
_MOST_DAMAGED: Final = 1_000
"""Damaged entries that are remembered for whoever mends them."""
_LOOK_BACK: Final = 16
"""Entries among which the last one that has a bookmark is looked for."""

MOST_SEQUENCE: Final = (1 << 64) - 1
"""The highest sequence number that there can be."""

DUPLICATE: Final = "duplicate"
"""The reason with which a command is refused whose publisher has sent it before."""


class DuplicateError(Exception):
    """A publisher's sequence number is not above the highest one that it has used."""


InTheWay: TypeAlias = Callable[["Path", int], None]
"""Told of a journal that cannot be removed, and of the txid before which its entries are."""


class Settlement(Protocol):
    """Tells what is settled where other instances have to acknowledge entries."""

    @property
    def settled(self) -> int:
        """The txid up to which everything is settled; it never goes back."""

    def committed(self) -> None:
        """Take note that more of the log is on stable storage."""

    def concerns(self, topic: Topic) -> bool:
        """Whether somebody has to acknowledge what is published to a topic."""

    def places(self, txid: int) -> Sequence[tuple[int, int]]:
        """The places in other instances' logs that go with one in this log.

        Returns:
            Numbers of logs, each with the txid there up to which this log lacks nothing: up to the
            entry given it has what is there.
        """


class Mender(Protocol):
    """Mends damaged entries."""

    def look(self, txid: int) -> None:
        """Find out what is damaged, from an entry on that cannot be read."""

    def is_lost(self, txid: int) -> bool:
        """Whether an entry that cannot be read will hardly be mended soon."""


class _Hold(NamedTuple):
    """What somebody needs of the log. See `TransactionLog.hold`."""

    needed_from: Callable[[], int]
    whose: str
    in_the_way: InTheWay | None


class TransactionLog:
    """An open journal, and who waits for it.

    Args:
        journal: the journal.
        topics: what is recorded there.
        instance: the instance's name.
        helper: reads what takes long.

    Attributes:
        journal: see above.
        notes: takes note of what is published here, for replication; None if there is none.
        refusals: what publishers have to be told of.
        durable: the last entry on stable storage, as far as this thread has been told.
        unreadable_said: when it was last said that some of it cannot be read, in seconds since the
            Unix epoch: many readers may find that at once, and often.
    """

    def __init__(
        self,
        journal: Journal,
        topics: Sequence[JournaledTopicSpec],
        instance: str,
        helper: HelperThread,
    ) -> None:
        self.journal: Final = journal
        self.notes: Notes | None = None  # set before anything is recorded
        self.refusals: Final = Refusals(journal, lambda: self.notes)
        self.durable = journal.durable_txid
        self.unreadable_said = 0.0
        self.instance: Final = instance
        self._topics = topics
        self._helper = helper
        self._bookmarked: tuple[int, str | None] = 0, None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._unsettled: deque[tuple[int, Callable[[], None]]] = deque()
        self._settlement: Settlement | None = None
        self._start: Callable[[Sliced], None] | None = None  # set before anything is recorded
        self._is_releasing = False
        self._readers: list[Callable[[], None]] = []
        self._holds: dict[int, _Hold] = {}
        self._mender: Mender | None = None
        self._damaged: list[int] = []  # found before there was one
        self._holds_taken = 0
        self._behind_removal: list[Callable[[], None]] | None = None  # None: none is under way

    def records(self, message_type: str, name: str) -> bool:
        """Whether what is published to a topic is recorded.

        The server's own event topics are not (AMPS User Guide, Using the Transaction Log); the
        audit trail, which AMPS does not have, is if it is named as such.

        Args:
            message_type: the topic's message type.
            name: its name; for the topics of a Pattern, that of the topic which has the Pattern.
        """
        covering = [spec for spec in self._topics if spec.covers(message_type, name)]
        if name.startswith(_RESERVED):
            return name == AUDIT and any(spec.name == name for spec in covering)
        return bool(covering)

    def made_identity(self, client: int) -> int:
        """Return the identity of a publisher in bookmarks of messages that it does not number.

        Args:
            client: its client hash.
        """
        return server_made_identity(client, self.instance, self.journal.runs.current)

    def runs(self) -> Sequence[tuple[int, int]]:
        """Return the first txid and the number of each run that has recorded, and of this one."""
        return self.journal.runs.rows_with_current(self.journal.last_txid + 1)

    @property
    def last_txid(self) -> int:
        """Of the last entry appended."""
        return self.journal.last_txid

    def last_sequence(self, client_name: str) -> int:
        """The highest sequence number that a publisher has used, 0 for none."""
        return self.journal.last_sequence(client_hash(client_name))

    def settled_sequence(self, client_name: str) -> int:
        """The sequence number up to which all messages of a publisher are settled, 0 for none.

        Without other instances that have to acknowledge anything, that is its highest.
        """
        client = client_hash(client_name)
        highest = self.journal.last_sequence(client)
        if self.notes is None:
            return highest
        return self.notes.unsettled.settled(client, highest, self.settled())

    def has_come_to(self, mark: tuple[int, int]) -> bool:
        """Whether a publisher has come as far as to a bookmark: no such message comes any more.

        Args:
            mark: the bookmark as two numbers. Identities made by the server count in txids.
        """
        client, sequence = mark
        highest = self.journal.last_sequence(client)
        if highest:
            is_lacking = self.notes is not None and self.notes.lacks(client, sequence)
            return sequence <= highest and not is_lacking
        return self.journal.first_txid <= sequence <= self.journal.last_txid

    def refuse_duplicate(self, client: int, sequence: int) -> None:
        """Refuse a command that its publisher has sent before.

        Source: AMPS User Guide, Message Sequence Numbers.

        Raises:
            DuplicateError: its sequence number is too low.
            RefusedBeforeError: it is, and the command was refused then.
            JournalUnavailable: it is no sequence number.
        """
        if not 0 < sequence <= MOST_SEQUENCE:
            raise JournalUnavailable(f"{sequence} is no sequence number: expected 64 bits")
        highest = self.journal.last_sequence(client)
        if sequence <= highest and self.refusals.lacks(client, sequence):
            raise RefusedBeforeError(
                f"sequence number {sequence}: was refused when it came first, or got lost; this"
                f" publisher has got as far as {highest}, so it takes a new number"
            )
        if sequence <= highest:
            raise DuplicateError(
                f"sequence number {sequence}: this publisher has got as far as {highest}"
            )

    def reached(self, txid: int) -> None:
        """Take note that everything up to an entry is on stable storage."""
        self.durable = max(self.durable, txid)
        if self._settlement is not None:
            self._settlement.committed()
        self._release()

    def has_settled(self) -> None:
        """Take note that more is settled than before."""
        self._release()

    def _release(self) -> None:
        if not self._is_releasing and self._start is not None:
            self._is_releasing = True
            self._start(self)

    def use_settlement(self, settlement: Settlement) -> None:
        """Let publishers wait for other instances, too. Called before anything is published."""
        self._settlement = settlement

    def use_turns(self, start: Callable[[Sliced], None]) -> None:
        """Let what waits go on in slices.

        Args:
            start: begins work that is done in slices; see `Turns.start`.
        """
        self._start = start

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`; it is for all publishers."""
        return "", "commit"

    def step(self) -> bool:
        """Let some of what waits go on; see `Sliced.step`."""
        self._is_releasing = False  # should one of them fail, the others go on with the next commit
        if _let_go(self._waiting, self.durable) or (
            self._unsettled and _let_go(self._unsettled, self.settled())
        ):
            self._is_releasing = True
            return True
        readers, self._readers = self._readers, []
        for reader in readers:
            reader()
        return False

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call back when everything appended so far is on stable storage; at once if it is."""
        last = self.journal.last_txid
        if last <= self.durable and not self._waiting:  # nobody may overtake those who wait
            then()
        else:
            self._waiting.append((last, then))

    def when_settled(self, then: Callable[[], None], *topics: Topic) -> None:
        """Call back when everything appended so far is settled; at once if it is.

        Args:
            then: the call.
            topics: what it is about; where no other instance has to acknowledge what is published
                to these, stable storage is enough. None: all.
        """
        settlement = self._settlement
        if settlement is None or (topics and not any(map(settlement.concerns, topics))):
            self.when_durable(then)
            return
        last = self.journal.last_txid
        if last <= settlement.settled and not self._unsettled:
            then()
        else:
            self._unsettled.append((last, then))

    def when_longer(self, then: Callable[[], None]) -> None:
        """Call back once, when more entries are on stable storage, or settled."""
        self._readers.append(then)

    def close(self) -> None:
        """Put everything on stable storage, and end the threads."""
        self._helper.close()
        self.journal.close()

    def safe_here(self) -> int:
        """The last entry on stable storage of this machine."""
        return self.journal.durable_txid

    def settled(self) -> int:
        """The last entry that is safe wherever it has to be before its publisher is told so."""
        settlement = self._settlement
        return self.journal.durable_txid if settlement is None else settlement.settled

    def bookmark_at(self, txid: int) -> str | None:
        """The bookmark of the last event up to an entry on stable storage; None if not close."""
        if txid != self._bookmarked[0]:
            span = Span(txid - _LOOK_BACK, last=txid)
            try:
                entries = self.journal.replay(span, kinds=EVENTS).read(_LOOK_BACK)
            except JournalUnreadable:
                return None  # not to be had at the moment
            self._bookmarked = txid, entries[-1].bookmark if entries else None
        return self._bookmarked[1]

    def places(self, txid: int) -> list[str]:
        """Where to go on, here and elsewhere, for whoever has this log up to an entry.

        Args:
            txid: the entry, on stable storage.

        Returns:
            For each log a bookmark that is known where the log is: its publisher stands for the
            log (`Journal.place`), its sequence is a txid there. Nothing that stands before that
            place is missing here.
        """
        elsewhere = () if self._settlement is None else self._settlement.places(txid)
        return [f"{log}|{last}|" for log, last in (self.journal.place(txid), *elsewhere)]

    def moment_of(self, txid: int) -> int | None:
        """When an entry on stable storage was recorded, in microseconds; None if there is none.

        Raises:
            JournalUnreadable: that cannot be read at the moment.
        """
        entries = self.journal.replay(Span(txid - 1, last=txid), kinds=frozenset(Kind)).read(1)
        return entries[0].timestamp if entries else None

    def look_up(
        self,
        client: int,
        request: BookmarkRequest,
        not_found: NotFound,
        then: Callable[[Place], None],
    ) -> None:
        """Find out which part of the log a bookmark stands for.

        That may take going through files. It is done by the helper, once everything is readable
        that has been appended so far; `0|1|` stands for the end of the log as it is now.

        Args:
            client: the number of the session that asks; sessions take turns.
            request: the bookmark.
            not_found: what to do when none of the starts is in the log.
            then: called with what was found, or with why it is not to be had; at once if nothing
                has to be looked for.
        """
        now = self.journal.last_txid
        if request.is_plain:
            then(self.journal.resolve(request, not_found, now))
        else:
            self._search(client, request, not_found, now, then)

    def _search(
        self,
        client: int,
        request: BookmarkRequest,
        not_found: NotFound,
        now: int,
        then: Callable[[Place], None],
    ) -> None:
        """Have the helper find a bookmark, and keep all files until `then` has been called.

        Otherwise the file that has been found could be removed before the caller holds it. While
        one is being removed, no search begins.
        """

        def begin() -> None:
            if self._behind_removal is not None:
                self._behind_removal.append(begin)
                return
            first = self.journal.first_txid
            release = self.hold(lambda: first, f"search for a bookmark of session {client}")

            def found(place: Place) -> None:
                try:
                    then(place)
                finally:
                    release()

            steps = self._resolving(request, not_found, now)
            self._helper.do_in_pieces(client, steps, found)

        self.when_durable(begin)

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Have searches for bookmarks wait while the oldest file of the log is being removed."""
        waiting = self._behind_removal = []
        try:
            yield
        finally:
            self._behind_removal = None
            for begin in waiting:
                begin()

    def damaged(self, txid: int) -> None:
        """Take note of an entry that cannot be read though it had been on stable storage."""
        if self._mender is not None:
            self._mender.look(txid)
        elif len(self._damaged) < _MOST_DAMAGED:
            self._damaged.append(txid)

    def is_lost(self, txid: int) -> bool:
        """Whether an entry that cannot be read is not worth waiting for."""
        return self._mender is None or self._mender.is_lost(txid)

    def use_mender(self, mender: Mender) -> None:
        """Tell somebody of damaged entries, also of those known already."""
        self._mender = mender
        damaged, self._damaged = self._damaged, []
        for txid in damaged:
            mender.look(txid)

    def do_aside(self, work: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """Have something that takes long done by the helper, and go on with what that gives.

        See `HelperThread.do`; `work` must not raise.
        """
        self._helper.do(work, then)

    def _resolving(
        self, request: BookmarkRequest, not_found: NotFound, now: int
    ) -> Generator[None, None, Place]:
        try:
            return (yield from self.journal.resolving(request, not_found, now))
        except BookmarkError as error:
            return error
        except JournalUnreadable as error:
            return BookmarkError(f"the transaction log cannot be read: {error}")
        except OSError as error:
            return BookmarkError(f"the transaction log cannot be read: {reason(error)}")

    def hold(
        self, needed_from: Callable[[], int], whose: str, in_the_way: InTheWay | None = None
    ) -> Callable[[], None]:
        """Keep the files of the log that somebody still needs.

        Whoever reads the log for longer than a turn says so here: replays, queues, and replication,
        when it comes.

        Args:
            needed_from: tells the txid from which on entries are needed.
            whose: who needs them, for people, as in `queue orders`.
            in_the_way: told of a journal that has to stay for that, again and again.

        Returns:
            A function that ends it; calling it again does nothing.
        """
        number = self._holds_taken = self._holds_taken + 1
        self._holds[number] = _Hold(needed_from, whose, in_the_way)

        def release() -> None:
            self._holds.pop(number, None)

        return release

    @property
    def needed_from(self) -> int:
        """The txid before which nobody needs the log any more, as far as reading it goes."""
        holds = (hold.needed_from() for hold in self._holds.values())
        return min(holds, default=self.last_txid + 1)

    def holders(self) -> list[tuple[int, str]]:
        """Who needs the log, and from which txid on, those first who need most of it."""
        return sorted((hold.needed_from(), hold.whose) for hold in self._holds.values())

    def stays(self, path: Path, end: int) -> None:
        """Tell those who need a journal that it is to be removed.

        Args:
            path: the journal.
            end: the txid before which its entries are.
        """
        for hold in self._holds.values():
            if hold.in_the_way is not None and hold.needed_from() < end:
                hold.in_the_way(path, end)


def _let_go(waiting: deque[tuple[int, Callable[[], None]]], txid: int) -> bool:
    """Let some of those go on who wait for entries up to a txid; returns whether there are more."""
    for _ in range(_RELEASED_AT_ONCE):
        if not waiting or waiting[0][0] > txid:
            return False
        waiting.popleft()[1]()
    return True
