"""How the messages of one topic become entries of the transaction log.

What an entry has that a message has not is worked out here: the topic's handle, the moment at which
it was recorded, the bookmark of a message whose publisher does not number it, and the SOW key in
the form that entries keep. Whoever follows what is recorded is fed here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Final

from server.journal import MESSAGES, Kind, Origin, Topic
from server.journal.clients import server_made_identity
from server.journal.entry import NO_ORIGIN
from server.journal.layout import encode_text, pack_extras
from server.sow.records import NANOSECONDS_IN_MICROSECOND
from server.topics.feed import Recorded
from server.topics.transaction_log import MOST_SEQUENCE

if TYPE_CHECKING:
    from server.journal import AppendedRun, Content, TopicHandle
    from server.subscriptions.envelope import Envelope
    from server.topics.arrivals import Arrivals
    from server.topics.feed import Feed
    from server.topics.transaction_log import TransactionLog

_MOST_SECONDS: Final = (1 << 32) - 1
_MICROSECONDS: Final = 1_000_000


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

    __slots__ = ("_feeds", "_handle", "_message_type", "_name", "_topic", "log")

    def __init__(
        self, log: TransactionLog, message_type: str, name: str, feeds: Sequence[Feed] = ()
    ) -> None:
        self.log = log
        self._feeds = feeds
        self._message_type = message_type
        self._name = name
        self._topic = Topic(message_type, name)
        self._handle: TopicHandle | None = None

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call back when everything published so far is settled; see `TransactionLog`."""
        self.log.when_settled(then, self._topic)

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
        journal, notes = self.log.journal, self.log.notes
        if self._handle is None:
            self._handle = journal.topic(self._message_type, self._name)
        client = 0 if publisher is None else publisher.client_hash
        before = 0 if notes is None else journal.last_sequence(client)
        run = journal.append_run(
            self._handle,
            client,
            envelope.sequences,
            bodies,
            start,
            journal.origin(publisher.user) if publisher is not None and publisher.user else None,
            sow_keys,
            min(max(expiration, 0), _MOST_SECONDS),
        )
        envelope.received = run.timestamp / _MICROSECONDS
        if notes is not None and run.txids:
            notes.take(
                client,
                before,
                envelope.sequences[start : run.end],
                bodies[start : run.end],
                run.txids,
                self._handle.topic,
                _origin_of(envelope),
            )
        if self._feeds and run.txids:
            self._feed(
                Recorded(
                    self._name,
                    bodies[start : run.end],
                    envelope,
                    run.txids,
                    run.timestamp,
                    self._identity(envelope, is_numbered=bool(envelope.sequences)),
                    envelope.sequences[start : run.end] or run.txids,
                    sow_keys[start : run.end],
                    expiration,
                )
            )
        return run

    def append_copies(self, arrivals: Arrivals, content: Content) -> AppendedRun:
        """Record what another instance has recorded; how far that has come, `arrivals` knows, too.

        Args:
            arrivals: what has come.
            content: what is recorded of it, from its position on.
        """
        journal, origin, start = self.log.journal, arrivals.run.origin, arrivals.position
        if self._handle is None:
            self._handle = journal.topic(self._message_type, self._name)
        handle = journal.origin(origin.auth_id, origin.path)
        appended = journal.append_copies(self._handle, handle, content)
        arrivals.took(appended)
        if self._feeds and appended.txids and arrivals.kind in MESSAGES:
            for first, end in arrivals.alike(start, start + appended.end):
                here = slice(first - start, end - start)
                self._feed(
                    Recorded(
                        self._name,
                        arrivals.bodies[first:end],
                        arrivals.envelope(first, appended.timestamp),
                        appended.txids[here],
                        appended.timestamp,
                        arrivals.run.clients[first],
                        arrivals.run.sequences[first:end],
                        content.keys(here),
                        arrivals.run.expirations[first],
                        origin.path,
                    )
                )
        return appended

    def published_twice(
        self, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """See `Feed.published_twice`."""
        for feed in self._feeds:
            feed.published_twice(marks, publishers)

    def _feed(self, recorded: Recorded) -> None:
        for feed in self._feeds:
            feed.take(recorded)

    def _identity(self, envelope: Envelope, *, is_numbered: bool) -> int:
        """What stands for the publisher in bookmarks of messages that it numbers, or does not."""
        client = 0 if envelope.publisher is None else envelope.publisher.client_hash
        return client if is_numbered else server_made_identity(client, self.log.instance)

    def bookmark(self, envelope: Envelope, txid: int) -> str:
        """The bookmark of a message that has been recorded, with the envelope's number if any."""
        identity = self._identity(envelope, is_numbered=envelope.sequence > 0)
        return f"{identity}|{envelope.sequence or txid}|"

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
        publisher, journal, notes = envelope.publisher, self.log.journal, self.log.notes
        if self._handle is None:
            self._handle = journal.topic(self._message_type, self._name)
        number, given = split_key(key)
        correlation_id = encode_text(envelope.correlation_id) if envelope.correlation_id else b""
        client = 0 if publisher is None else publisher.client_hash
        before = 0 if notes is None else journal.last_sequence(client)
        txid = journal.append(
            self._handle,
            client,
            envelope.sequence,
            body,
            kind,
            number,
            min(max(expiration, 0), _MOST_SECONDS),
            journal.origin(publisher.user) if publisher is not None and publisher.user else None,
            correlation_id,
            given,
        )
        if notes is not None:
            extras = pack_extras(correlation_id, given) if correlation_id or given else b""
            topic, origin = self._handle.topic, _origin_of(envelope)
            notes.take_one(client, before, envelope.sequence, body + extras, txid, topic, origin)
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
                    self._identity(envelope, is_numbered=envelope.sequence > 0),
                    (envelope.sequence or txid,),
                    (number,) if number else (),
                    expiration,
                )
            )
        return txid, moment * NANOSECONDS_IN_MICROSECOND


def _origin_of(envelope: Envelope) -> Origin:
    """What a journal says about where the messages of a client came from."""
    publisher = envelope.publisher
    return Origin(publisher.user) if publisher is not None and publisher.user else NO_ORIGIN


def split_key(key: str | None) -> tuple[int, bytes]:
    """A SOW key as an entry keeps it: as a number where it is one, else as text."""
    if key is None:
        return 0, b""
    if key.isascii() and key.isdigit() and key[0] != "0" and int(key) <= MOST_SEQUENCE:
        return int(key), b""
    return 0, encode_text(key)
