"""Numbered commands that were refused: their publishers must not take them for carried out.

Whoever refuses one says so here (`refused`). Before anything behind it is recorded, the log is told
(`before`); what a publisher has to be told again at its logon is `untold`, and `heard` when it goes
on after that. See `server.journal.missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from server.journal import JournalUnavailable, Kind, Note, Topic, encode_note
from server.journal.entry import NO_ORIGIN, NO_TOPIC

if TYPE_CHECKING:
    from server.journal import Journal
    from server.journal.missing import Pairs
    from server.topics.notes import Notes

NOTES: Final[Topic] = NO_TOPIC
"""The topic of the entries that say so: none."""


class RefusedBeforeError(Exception):
    """A command was refused when it came first, and others behind it have been carried out."""


class Refusals:
    """What has been refused, and what else publishers have to be told of.

    Args:
        journal: the log.
        notes: tells who takes note of what is recorded, for replication; None if nobody does.
    """

    def __init__(self, journal: Journal, notes: Callable[[], Notes | None]) -> None:
        self._journal: Final = journal
        self._notes: Final = notes
        self._missing: Final = journal.missing
        self._topic: Final = journal.topic(NOTES.message_type, NOTES.name)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to be kept in mind of what is recorded."""
        return bool(self._missing.refused or self._missing.missing)

    def begin(self, client: int) -> None:
        """A connection of a publisher begins, or has ended. See `Missing.begin`."""
        self._missing.begin(client)

    def refused(self, client: int, sequence: int) -> None:
        """A command has been refused.

        Args:
            client: the hash of its sender's name.
            sequence: its number; of one that is not above all of its sender's, it is not known
                whether it was carried out before.
        """
        if sequence > self._journal.last_sequence(client):
            self._missing.refuse(client, sequence)

    def failed(self, client: int, sequence: int) -> None:
        """A command that is not in the log has failed; others behind it may be there."""
        self._missing.refuse(client, sequence)
        if sequence <= self._journal.last_sequence(client):
            with suppress(JournalUnavailable):
                self.before(client, sequence + 1)

    def before(self, client: int, sequence: int) -> None:
        """A number of a publisher is about to be recorded.

        Args:
            client: the publisher's hash.
            sequence: the highest of the numbers.

        Raises:
            JournalUnavailable: it must not, or the log cannot be told what it has to be told.
        """
        if client not in self._missing.refused:
            return
        if self._missing.is_full(client):
            raise JournalUnavailable(
                "too many messages of this publisher have been refused, of which it may not know:"
                " it is told when it logs on again, and then others are taken"
            )
        missing = self._missing.due(client, sequence)
        if missing:
            self._record(client, Note(missing=list(missing)))

    def came(self, client: int, sequences: Sequence[int]) -> None:
        """Numbers of a publisher have been recorded."""
        if client in self._missing.missing or client in self._missing.refused:
            for sequence in sequences:
                self._missing.came(client, sequence, sequence)

    def take(self, client: int, note: Note) -> None:
        """Another instance has said something, which has been recorded."""
        self._missing.take(client, note, is_own=False)

    def are_here(self, client: int, sequences: Pairs) -> None:
        """Numbers are in this log that another instance lacks."""
        with suppress(JournalUnavailable):  # then the publisher is told without need
            self._record(client, Note(here=list(sequences)))

    def lacks(self, client: int, sequence: int) -> bool:
        """Whether a number is known not to be in the log, though higher ones may be."""
        return self._missing.lacks(client, sequence)

    def untold(self, client: int, sequence: int) -> Pairs:
        """What a publisher has to be told of before it is told that all is well up to a number."""
        return self._missing.upto(client, sequence)

    def heard(self, client: int, told: Pairs) -> None:
        """A publisher has been told of something, and has gone on."""
        with suppress(JournalUnavailable):  # then it is told again another time
            self._record(client, Note(heard=list(told)))

    def lost(self, client: int, missing: Pairs) -> None:
        """Numbers of a publisher will not come, though what is behind them does.

        Raises:
            JournalUnavailable: the log cannot be told so.
        """
        self._record(client, Note(missing=list(missing)))

    def _record(self, client: int, note: Note) -> None:
        body = encode_note(note)
        txid = self._journal.append(self._topic, client, 0, body, Kind.MISSING)
        self._missing.take(client, note)
        notes = self._notes()
        if notes is not None:
            notes.take_one(client, 0, 0, body, txid, NOTES, NO_ORIGIN)
