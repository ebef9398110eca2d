"""Answers that may be asynchronous: of a web service, a directory, a helper thread.

A function returns either the answer, or an `AnswerFuture` that will have it. Calls, answers and
callbacks all run on the engine's thread, which does other work meanwhile: a session that waits
executes no commands, and blocks no other session.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

AnswerT = TypeVar("AnswerT")
OtherT = TypeVar("OtherT")


class AnswerFuture(Generic[AnswerT]):
    """An answer that is to come.

    Attributes:
        is_there: whether it has come.
    """

    __slots__ = ("_answer", "_if_given_up", "_waiting", "is_there")

    def __init__(self) -> None:
        self.is_there = False
        self._answer: list[AnswerT] = []
        self._waiting: list[Callable[[AnswerT], None]] = []
        self._if_given_up: Callable[[], None] | None = None

    @property
    def answer(self) -> AnswerT:
        """The answer, which must have come."""
        return self._answer[0]

    def give(self, answer: AnswerT) -> None:
        """Set the answer and run the callbacks that wait for it. Further answers are ignored."""
        if self.is_there:
            return
        self.is_there = True
        self._answer.append(answer)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(answer)

    def when_there(self, then: Callable[[AnswerT], None]) -> None:
        """Call a function with the answer: immediately, or when it comes."""
        if self.is_there:
            then(self.answer)
        else:
            self._waiting.append(then)

    def give_up(self) -> None:
        """Abandon the answer, which may never come then.

        Only for the sole waiter of an answer: one with several waiters has no function for this.
        """
        if not self.is_there and self._if_given_up is not None:
            self._if_given_up()

    def if_given_up(self, then: Callable[[], None]) -> None:
        """Set the function to call when the answer is abandoned."""
        self._if_given_up = then


AnswerOrFuture: TypeAlias = AnswerT | AnswerFuture[AnswerT]
"""An answer, or one that is to come."""


def on_answer(later: AnswerOrFuture[AnswerT], then: Callable[[AnswerT], None]) -> None:
    """Call a function with an answer: immediately, or when it comes."""
    if isinstance(later, AnswerFuture):
        later.when_there(then)
    else:
        then(later)


def mapped(
    later: AnswerOrFuture[AnswerT], make: Callable[[AnswerT], OtherT]
) -> AnswerOrFuture[OtherT]:
    """Apply a function to an answer: immediately, or when it comes."""
    if not isinstance(later, AnswerFuture):
        return make(later)
    made: AnswerFuture[OtherT] = AnswerFuture()
    later.when_there(lambda answer: made.give(make(answer)))
    made.if_given_up(later.give_up)
    return made


def decided(later: AnswerOrFuture[AnswerT]) -> Generator[AnswerFuture[AnswerT], None, AnswerT]:
    """Wait for an answer in a command that is executed in steps; return the answer.

    Closing the generator early abandons the answer.
    """
    if not isinstance(later, AnswerFuture):
        return later
    try:
        while not later.is_there:
            yield later
    except GeneratorExit:
        later.give_up()
        raise
    return later.answer
