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
        is_done: whether it has come.
    """

    __slots__ = ("_callbacks", "_on_cancel", "_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: list[AnswerT] = []
        self._callbacks: list[Callable[[AnswerT], None]] = []
        self._on_cancel: Callable[[], None] | None = None

    @property
    def result(self) -> AnswerT:
        """The answer, which must have come."""
        return self._result[0]

    def set_result(self, answer: AnswerT) -> None:
        """Set the answer and run the callbacks that wait for it. Further answers are ignored."""
        if self.is_done:
            return
        self.is_done = True
        self._result.append(answer)
        callbacks, self._callbacks = self._callbacks, []
        for then in callbacks:
            then(answer)

    def add_done_callback(self, then: Callable[[AnswerT], None]) -> None:
        """Call a function with the answer: immediately, or when it comes."""
        if self.is_done:
            then(self.result)
        else:
            self._callbacks.append(then)

    def cancel(self) -> None:
        """Abandon the answer, which may never come then.

        Only for the sole waiter of an answer: one with several waiters has no function for this.
        """
        if not self.is_done and self._on_cancel is not None:
            self._on_cancel()

    def on_cancel(self, then: Callable[[], None]) -> None:
        """Set the function to call when the answer is abandoned."""
        self._on_cancel = then


AnswerOrFuture: TypeAlias = AnswerT | AnswerFuture[AnswerT]
"""An answer, or one that is to come."""


def on_answer(later: AnswerOrFuture[AnswerT], then: Callable[[AnswerT], None]) -> None:
    """Call a function with an answer: immediately, or when it comes."""
    if isinstance(later, AnswerFuture):
        later.add_done_callback(then)
    else:
        then(later)


def mapped(
    later: AnswerOrFuture[AnswerT], make: Callable[[AnswerT], OtherT]
) -> AnswerOrFuture[OtherT]:
    """Apply a function to an answer: immediately, or when it comes."""
    if not isinstance(later, AnswerFuture):
        return make(later)
    made: AnswerFuture[OtherT] = AnswerFuture()
    later.add_done_callback(lambda answer: made.set_result(make(answer)))
    made.on_cancel(later.cancel)
    return made


def decided(later: AnswerOrFuture[AnswerT]) -> Generator[AnswerFuture[AnswerT], None, AnswerT]:
    """Wait for an answer in a command that is executed in steps; return the answer.

    Closing the generator early abandons the answer.
    """
    if not isinstance(later, AnswerFuture):
        return later
    try:
        while not later.is_done:
            yield later
    except GeneratorExit:
        later.cancel()
        raise
    return later.result
