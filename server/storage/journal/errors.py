"""Errors of a journal, with texts for operators and clients, and its notices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class JournalError(Exception):
    """The journal cannot be opened; the text has the problem, its place and the remedy."""


class JournalUnavailableError(Exception):
    """Nothing can be recorded at the moment; the text is a reason for the publisher."""


class JournalUnreadableError(Exception):
    """A part of the log cannot be read at the moment, which does not mean that it is damaged.

    Nothing has been skipped: a reader that retries gets all entries. The text is a reason.
    """


class EntryTooLargeError(JournalUnavailableError):
    """A message does not fit into a journal file."""


class JournalEvent(Enum):
    """The kinds of notices for operators."""

    RECOVERED = "recovered"
    TORN_TAIL = "torn tail"
    DAMAGED = "damaged"
    WRITE_FAILED = "write failed"
    WRITE_RESUMED = "write resumed"
    UPKEEP_FAILED = "upkeep failed"
    ROTATED = "rotated"


@dataclass(frozen=True, slots=True)
class JournalNotice:
    """A notice for operators.

    Attributes:
        event: the kind of notice.
        text: a sentence.
        path: the file concerned, empty if there is none.
        txid: the entry concerned, 0 if there is none.
    """

    event: JournalEvent
    text: str
    path: str = ""
    txid: int = 0


def reason(problem: OSError) -> str:
    """Return the system's text about a failure, with the file if the error has one."""
    text = problem.strerror or str(problem)
    return f"{problem.filename}: {text}" if problem.filename else text
