"""Answers questions about what has been recorded, on a thread and a connection of its own.

A page of values from a cold disk may take a second, and no sample has to wait for that: who writes
to a file in SQLite's WAL mode is not held up by those who read. Only what is in memory is read
where it is written (`keeper.py`), since there is one connection to it.

Which file that is may change: it is a new one when the old one has been removed or renamed. The
keeper says so, and the next question is asked of that.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from server.statistics.history import History

MOST_QUESTIONS: Final = 1_000
"""Questions that wait to be answered; more are refused."""

_BUSY_SECONDS: Final = 1.0
"""How long a question waits for somebody who has locked the file."""

_PATIENCE_SECONDS: Final = 5.0
"""How long a question waits for the last sample to be recorded, so that it finds that."""

_CLOSE_SECONDS: Final = 5.0


class BusyError(Exception):
    """More questions wait for the database than it will answer in a reasonable time."""


class Place(NamedTuple):
    """A file that can be read.

    Attributes:
        path: where it is.
        opened: how often one has been opened for writing; another number is another file.
    """

    path: str
    opened: int


class Question:
    """Something that is asked, and the answer."""

    def __init__(self, ask: Callable[[History], Any]) -> None:
        self.answer: Final = Future[Any]()
        self._ask = ask

    def put_to(self, history: Callable[[], History]) -> None:
        """Ask, unless nobody waits for the answer any more.

        Args:
            history: gives what is asked.
        """
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            self.answer.set_result(self._ask(history()))
        except Exception as error:
            self.answer.set_exception(error)


class Reader:
    """Answers questions from a file.

    Args:
        hand_on: takes questions that no file answers any more.

    Attributes:
        queries: questions that have been answered.
    """

    def __init__(self, hand_on: Callable[[Question], None]) -> None:
        self.queries = 0
        self._hand_on = hand_on
        self._place: Place | None = None
        self._wake = threading.Condition()
        self._questions: deque[Question] = deque()
        self._is_closing = False
        self._is_recorded = False
        self._open: tuple[Place, sqlite3.Connection] | None = None
        self._thread = threading.Thread(target=self._run, name="statistics reader", daemon=True)

    @property
    def can_answer(self) -> bool:
        """Whether there is a file to be read."""
        return self._place is not None

    def expect(self) -> None:
        """A sample is about to be told of and recorded: questions wait until it has been."""
        self._is_recorded = False

    def read(self, place: Place | None) -> None:
        """Read this file from now on, which has the last sample; None if there is none."""
        with self._wake:
            self._place = place
            self._is_recorded = True
            self._wake.notify()
        if place is not None and self._thread.ident is None:
            self._thread.start()

    def let_go(self) -> None:
        """Close the file, as whoever writes to it is about to; what is being read is given up."""
        with self._wake:
            self._place = None
            self._wake.notify()
            if self._open is not None:
                self._open[1].interrupt()
            self._wake.wait_for(lambda: self._open is None, _CLOSE_SECONDS)

    def ask(self, question: Question) -> None:
        """Have a question answered; `BusyError` is the answer if too many wait."""
        with self._wake:
            if self._is_closing:
                question.answer.cancel()
            elif len(self._questions) >= MOST_QUESTIONS:
                question.answer.set_exception(
                    BusyError("too many questions wait for the statistics")
                )
            else:
                self._questions.append(question)
                self._wake.notify()

    def close(self) -> None:
        """Answer nothing more; what is being read is given up."""
        with self._wake:
            self._is_closing = True
            for question in self._questions:
                question.answer.cancel()
            self._questions.clear()
            self._wake.notify()
            if self._open is not None:
                self._open[1].interrupt()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (question := self._next()) is not None:
            place = self._recorded_place()
            if place is None and self._is_recorded:
                self._hand_on(question)
            else:
                question.put_to(partial(self._history, place))
        self._close()

    def _next(self) -> Question | None:
        with self._wake:
            while True:
                if self._open is not None and self._open[0] != self._place:
                    self._close()
                if self._questions:
                    return self._questions.popleft()
                if self._is_closing:
                    return None
                self._wake.wait()

    def _history(self, place: Place | None) -> History:
        """What has been recorded in a file.

        Raises:
            sqlite3.Error: it cannot be opened, or it is not known yet which it is.
        """
        if place is None:
            raise sqlite3.OperationalError("the last sample is still being recorded")
        if self._open is None:
            uri = f"{Path(place.path).absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            with self._wake:
                self._open = place, connection
        self.queries += 1
        return History(self._open[1])

    def _recorded_place(self) -> Place | None:
        """Wait until the last sample is recorded, if that does not take too long.

        Returns:
            Where it is; None for no file.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        with self._wake:
            while True:
                if self._open is not None and self._open[0] != self._place:
                    self._close()
                seconds = end - time.monotonic()
                if self._is_recorded or seconds <= 0:
                    return self._place
                self._wake.wait(seconds)

    def _close(self) -> None:
        with self._wake:
            if self._open is not None:
                self._open[1].close()
                self._open = None
                self._wake.notify_all()
