"""What goes wrong with a journal, in words for people, and what the journal has to tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class JournalError(Exception):
    """The journal cannot be opened; the text says what is wrong, where, and what to do."""


class JournalUnavailable(Exception):
    """Nothing can be recorded at the moment; the text is a reason for whoever publishes."""


class JournalUnreadable(Exception):
    """Some of the log cannot be read at the moment, which does not mean that it is damaged.

    Nothing has been passed over: who reads again gets what there is. The text is a reason.
    """


class EntryTooLarge(JournalUnavailable):
    """A message does not fit into a journal file."""


class Event(Enum):
    """What is worth telling an operator."""

    RECOVERED = "recovered"
    TORN_TAIL = "torn tail"
    DAMAGED = "damaged"
    WRITE_FAILED = "write failed"
    WRITE_RESUMED = "write resumed"
    UPKEEP_FAILED = "upkeep failed"
    ROTATED = "rotated"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something has happened.

    Attributes:
        event: what kind of thing.
        text: a sentence.
        path: the file concerned, empty if there is none.
        txid: the entry concerned, 0 if there is none.
    """

    event: Event
    text: str
    path: str = ""
    txid: int = 0


def reason(problem: OSError) -> str:
    """What the system says about a failure, with the file if it names one."""
    text = problem.strerror or str(problem)
    return f"{problem.filename}: {text}" if problem.filename else text
