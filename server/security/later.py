"""Answers that may come later: of a web service, a directory, a helper thread.

Whoever decides gives either the answer, or a `Pending` that gets it. Asking, answering and waiting
all happen on the engine's thread, which does other work meanwhile: a session that waits obeys
nothing, and holds nobody else up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

Answer = TypeVar("Answer")
Other = TypeVar("Other")


class Pending(Generic[Answer]):
    """An answer that is to come.

    Attributes:
        is_there: whether it has come.
    """

    __slots__ = ("_answer", "_if_given_up", "_waiting", "is_there")

    def __init__(self) -> None:
        self.is_there = False
        self._answer: list[Answer] = []
        self._waiting: list[Callable[[Answer], None]] = []
        self._if_given_up: Callable[[], None] | None = None

    @property
    def answer(self) -> Answer:
        """The answer. It has come."""
        return self._answer[0]

    def give(self, answer: Answer) -> None:
        """It has come; whoever waits goes on. What comes after that is ignored."""
        if self.is_there:
            return
        self.is_there = True
        self._answer.append(answer)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(answer)

    def when_there(self, then: Callable[[Answer], None]) -> None:
        """Call a function with the answer: at once, or when it comes."""
        if self.is_there:
            then(self.answer)
        else:
            self._waiting.append(then)

    def give_up(self) -> None:
        """Nobody waits for it any more: it may never come.

        That is for whoever waits alone. One that several wait for has nothing to be called.
        """
        if not self.is_there and self._if_given_up is not None:
            self._if_given_up()

    def if_given_up(self, then: Callable[[], None]) -> None:
        """Have a function called in that case."""
        self._if_given_up = then


Later: TypeAlias = Answer | Pending[Answer]
"""An answer, or one that is to come."""


def when_decided(later: Later[Answer], then: Callable[[Answer], None]) -> None:
    """Call a function with an answer: at once, or when it comes."""
    if isinstance(later, Pending):
        later.when_there(then)
    else:
        then(later)


def mapped(later: Later[Answer], make: Callable[[Answer], Other]) -> Later[Other]:
    """What is made of an answer: at once, or when it comes."""
    if not isinstance(later, Pending):
        return make(later)
    made: Pending[Other] = Pending()
    later.when_there(lambda answer: made.give(make(answer)))
    made.if_given_up(later.give_up)
    return made


def decided(later: Later[Answer]) -> Generator[Pending[Answer], None, Answer]:
    """Wait for an answer in a command that is carried out step by step.

    If that is not done to its end, the answer is given up.
    """
    if not isinstance(later, Pending):
        return later
    try:
        while not later.is_there:
            yield later
    except GeneratorExit:
        later.give_up()
        raise
    return later.answer
