"""The transaction log as topics, commands and replays see it: on the engine's thread.

    a publish:     append -> txid ... the committer's thread writes and syncs ... reached(txid)
    what waits:    acks, in the order of txids; replays that have read everything there is

The journal's own threads never come here. What they have made durable is posted to the engine's
thread, and only from then on counts as durable, so that everything here has one order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Final, TypeAlias

from server.journal import (
    EVENTS,
    MESSAGES,
    BookmarkError,
    JournalUnavailable,
    JournalUnreadable,
    Kind,
    Span,
)
from server.journal.clients import server_made_identity
from server.journal.errors import reason
from server.journal.layout import encode_text
from server.sow.records import NANOSECONDS_IN_MICROSECOND
from server.topics.feed import Recorded
from server.wire.bookmarks import client_hash

if TYPE_CHECKING:
    from config_schema.spec import JournaledTopicSpec
    from server.base.helper_thread import HelperThread
    from server.base.slices import Sliced
    from server.journal import AppendedRun, BookmarkRequest, Journal, NotFound, TopicHandle
    from server.subscriptions.envelope import Envelope
    from server.topics.feed import Feed

Place: TypeAlias = Span | BookmarkError
"""A part of the log, or why there is none."""

_RESERVED: Final = "/AMPS/"
_MOST_SEQUENCE: Final = (1 << 64) - 1
_MOST_SECONDS: Final = (1 << 32) - 1
_MICROSECONDS: Final = 1_000_000
_RELEASED_AT_ONCE: Final = 128
"""Of those who wait for stable storage; each has an ack or so to send."""
_LOOK_BACK: Final = 16
"""Entries among which the last one that has a bookmark is looked for."""


DUPLICATE: Final = "duplicate"
"""The reason with which a command is refused whose publisher has sent it before."""


class DuplicateError(Exception):
    """A publisher's sequence number is not above the highest one that it has used."""


class TransactionLog:
    """An open journal, and who waits for it.

    Args:
        journal: the journal.
        topics: what is recorded there.
        instance: the instance's name.
        helper: reads what takes long.

    Attributes:
        journal: see above.
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
        self.durable = journal.durable_txid
        self.unreadable_said = 0.0
        self.instance: Final = instance
        self._topics = topics
        self._helper = helper
        self._bookmarked: tuple[int, str | None] = 0, None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._start: Callable[[Sliced], None] | None = None  # set before anything is recorded
        self._is_releasing = False
        self._readers: list[Callable[[], None]] = []
        self._holds: dict[int, Callable[[], int]] = {}
        self._holds_taken = 0

    def records(self, message_type: str, name: str) -> bool:
        """Whether what is published to a topic is recorded.

        The server's own event topics are not (AMPS User Guide, Using the Transaction Log).

        Args:
            message_type: the topic's message type.
            name: its name; for the topics of a Pattern, that of the topic which has the Pattern.
        """
        return not name.startswith(_RESERVED) and any(
            spec.covers(message_type, name) for spec in self._topics
        )

    @property
    def last_txid(self) -> int:
        """Of the last entry appended."""
        return self.journal.last_txid

    def last_sequence(self, client_name: str) -> int:
        """The highest sequence number that a publisher has used, 0 for none."""
        return self.journal.last_sequence(client_hash(client_name))

    def refuse_duplicate(self, client: int, sequence: int) -> None:
        """Refuse a command that its publisher has sent before.

        Source: AMPS User Guide, Message Sequence Numbers.

        Raises:
            DuplicateError: its sequence number is too low.
            JournalUnavailable: it is no sequence number.
        """
        if not 0 < sequence <= _MOST_SEQUENCE:
            raise JournalUnavailable(f"{sequence} is no sequence number: expected 64 bits")
        highest = self.journal.last_sequence(client)
        if sequence <= highest:
            raise DuplicateError(
                f"sequence number {sequence}: this publisher has got as far as {highest}"
            )

    def reached(self, txid: int) -> None:
        """Take note that everything up to an entry is on stable storage."""
        self.durable = max(self.durable, txid)
        if not self._is_releasing and self._start is not None:
            self._is_releasing = True
            self._start(self)

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
        waiting = self._waiting
        self._is_releasing = False  # should one of them fail, the others go on with the next commit
        for _ in range(_RELEASED_AT_ONCE):
            if not waiting or waiting[0][0] > self.durable:
                break
            waiting.popleft()[1]()
        else:
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

    def when_longer(self, then: Callable[[], None]) -> None:
        """Call back once, when more entries are on stable storage."""
        self._readers.append(then)

    def close(self) -> None:
        """Put everything on stable storage, and end the threads."""
        self._helper.close()
        self.journal.close()

    def safe_here(self) -> int:
        """The last entry on stable storage of this machine."""
        return self.journal.durable_txid

    def settled(self) -> int:
        """The last entry that is safe wherever it has to be before its publisher is told so.

        That is here, as long as no other instance has to acknowledge messages.
        """
        return self.journal.durable_txid

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
            steps = self._resolving(request, not_found, now)
            self.when_durable(lambda: self._helper.do_in_pieces(client, steps, then))

    def do_aside(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Have something that takes long done by the helper, and go on after that."""
        self._helper.do(work, lambda _: then())

    def _resolving(
        self, request: BookmarkRequest, not_found: NotFound, now: int
    ) -> Generator[None, None, Place]:
        try:
            return (yield from self.journal.resolving(request, not_found, now))
        except BookmarkError as error:
            return error
        except OSError as error:
            return BookmarkError(f"the transaction log cannot be read: {reason(error)}")

    def hold(self, needed_from: Callable[[], int]) -> Callable[[], None]:
        """Keep the files of the log that somebody still needs.

        Whoever reads the log for longer than a turn says so here: replays; queues, and replication,
        when they come.

        Args:
            needed_from: tells the txid from which on entries are needed.

        Returns:
            A function that ends it; calling it again does nothing.
        """
        number = self._holds_taken = self._holds_taken + 1
        self._holds[number] = needed_from

        def release() -> None:
            self._holds.pop(number, None)

        return release

    @property
    def needed_from(self) -> int:
        """The txid before which nobody needs the log any more, as far as reading it goes."""
        return min((hold() for hold in self._holds.values()), default=self.last_txid + 1)


class TopicJournal:
    """Records what is published to one topic.

    Args:
        log: the transaction log.
        message_type: the topic's message type.
        name: its name.
        feeds: who is told of what has been recorded, in the order of the log.

    Attributes:
        log: see above.
    """

    __slots__ = ("_feeds", "_handle", "_message_type", "_name", "log")

    def __init__(
        self, log: TransactionLog, message_type: str, name: str, feeds: Sequence[Feed] = ()
    ) -> None:
        self.log = log
        self._feeds = feeds
        self._message_type = message_type
        self._name = name
        self._handle: TopicHandle | None = None

    def refuse_duplicate(self, envelope: Envelope) -> None:
        """Refuse a message that its publisher has published before.

        Raises:
            DuplicateError: its sequence number is too low.
            JournalUnavailable: it is no sequence number.
        """
        if envelope.sequence and envelope.publisher is not None:
            self.log.refuse_duplicate(envelope.publisher.client_hash, envelope.sequence)

    def append_run(
        self,
        envelope: Envelope,
        bodies: Sequence[bytes],
        start: int,
        sow_keys: Sequence[int] = (),
        expiration: int = 0,
    ) -> AppendedRun:
        """Record messages that have nothing but the numbers of the envelope; see `append`.

        Args:
            envelope: what their publisher said about them; the numbers are ascending and new.
            bodies: what is recorded.
            start: the position of the first of them that is.
            sow_keys: the SOW keys of their records as numbers; empty for none.
            expiration: seconds that they live, 0 for ever.

        Returns:
            How far that has come, at one moment, which the envelope has from then on.
        """
        publisher = envelope.publisher
        journal = self.log.journal
        if self._handle is None:
            self._handle = journal.topic(self._message_type, self._name)
        run = journal.append_run(
            self._handle,
            0 if publisher is None else publisher.client_hash,
            envelope.sequences,
            bodies,
            start,
            journal.origin(publisher.user) if publisher is not None and publisher.user else None,
            sow_keys,
            min(max(expiration, 0), _MOST_SECONDS),
        )
        envelope.received = run.timestamp / _MICROSECONDS
        if self._feeds and run.txids:
            self._feed(
                Recorded(
                    self._name,
                    bodies[start : run.end],
                    envelope,
                    run.txids,
                    run.timestamp,
                    self._identity(envelope),
                    envelope.sequences[start : run.end] or run.txids,
                    sow_keys[start : run.end],
                    expiration,
                )
            )
        return run

    def _feed(self, recorded: Recorded) -> None:
        for feed in self._feeds:
            feed.take(recorded)

    def _identity(self, envelope: Envelope) -> int:
        """What stands for the publisher in bookmarks."""
        client = 0 if envelope.publisher is None else envelope.publisher.client_hash
        if envelope.sequences or envelope.sequence:
            return client
        return server_made_identity(client, self.log.instance)

    def bookmark(self, envelope: Envelope, txid: int) -> str:
        """The bookmark of a message that has been recorded, with the envelope's number if any."""
        publisher = envelope.publisher
        client = 0 if publisher is None else publisher.client_hash
        if envelope.sequence:
            return f"{client}|{envelope.sequence}|"
        return f"{server_made_identity(client, self.log.instance)}|{txid}|"

    def is_run(self, envelope: Envelope) -> bool:
        """Whether messages are new and in order, so that they can be recorded together."""
        numbers, publisher = envelope.sequences, envelope.publisher
        return not numbers or (
            publisher is not None
            and numbers[0] > self.log.journal.last_sequence(publisher.client_hash)
            and all(map(lt, numbers, islice(numbers, 1, None)))
        )

    def append(
        self,
        envelope: Envelope,
        body: bytes,
        kind: Kind = Kind.PUBLISH,
        key: str | None = None,
        expiration: int = 0,
    ) -> tuple[int, int]:
        """Record a message, or a deletion.

        Args:
            envelope: what its publisher said about it.
            body: what is recorded.
            kind: what it stands for.
            key: the SOW key of its record.
            expiration: seconds that it lives, 0 for ever.

        Returns:
            The entry's txid, and its moment in nanoseconds since 1970. The envelope has that,
            and the entry's bookmark, from then on.

        Raises:
            JournalUnavailable: it cannot be recorded; nothing has changed.
        """
        publisher, journal = envelope.publisher, self.log.journal
        if self._handle is None:
            self._handle = journal.topic(self._message_type, self._name)
        number, given = _split_key(key)
        correlation_id = envelope.correlation_id
        client = 0 if publisher is None else publisher.client_hash
        txid = journal.append(
            self._handle,
            client,
            envelope.sequence,
            body,
            kind,
            number,
            min(max(expiration, 0), _MOST_SECONDS),
            journal.origin(publisher.user) if publisher is not None and publisher.user else None,
            encode_text(correlation_id) if correlation_id else b"",
            given,
        )
        moment = journal.last_timestamp
        envelope.received = moment / _MICROSECONDS
        envelope.bookmark = self.bookmark(envelope, txid)
        if self._feeds and kind in MESSAGES:
            self._feed(
                Recorded(
                    self._name,
                    (body,),
                    envelope,
                    (txid,),
                    moment,
                    self._identity(envelope),
                    (envelope.sequence or txid,),
                    (number,) if number else (),
                    expiration,
                )
            )
        return txid, moment * NANOSECONDS_IN_MICROSECOND


def _split_key(key: str | None) -> tuple[int, bytes]:
    """A SOW key as an entry keeps it: as a number where it is one, else as text."""
    if key is None:
        return 0, b""
    if key.isascii() and key.isdigit() and key[0] != "0" and int(key) <= _MOST_SEQUENCE:
        return int(key), b""
    return 0, encode_text(key)
