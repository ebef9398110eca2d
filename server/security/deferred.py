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
        for callback in callbacks:
            callback(answer)

    def add_done_callback(self, callback: Callable[[AnswerT], None]) -> None:
        """Call a function with the answer: immediately, or when it comes."""
        if self.is_done:
            callback(self.result)
        else:
            self._callbacks.append(callback)

    def cancel(self) -> None:
        """Abandon the answer, which may never come then.

        Only for the sole waiter of an answer: one with several waiters has no function for this.
        """
        if not self.is_done and self._on_cancel is not None:
            self._on_cancel()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Set the function to call when the answer is abandoned."""
        self._on_cancel = callback


AnswerOrFuture: TypeAlias = AnswerT | AnswerFuture[AnswerT]
"""An answer, or one that is to come."""


def on_answer(
    answer_or_future: AnswerOrFuture[AnswerT], callback: Callable[[AnswerT], None]
) -> None:
    """Call a function with an answer: immediately, or when it comes."""
    if isinstance(answer_or_future, AnswerFuture):
        answer_or_future.add_done_callback(callback)
    else:
        callback(answer_or_future)


def mapped(
    answer_or_future: AnswerOrFuture[AnswerT], make: Callable[[AnswerT], OtherT]
) -> AnswerOrFuture[OtherT]:
    """Apply a function to an answer: immediately, or when it comes."""
    if not isinstance(answer_or_future, AnswerFuture):
        return make(answer_or_future)
    mapped_answer: AnswerFuture[OtherT] = AnswerFuture()
    answer_or_future.add_done_callback(lambda answer: mapped_answer.set_result(make(answer)))
    mapped_answer.on_cancel(answer_or_future.cancel)
    return mapped_answer


def decided(
    answer_or_future: AnswerOrFuture[AnswerT],
) -> Generator[AnswerFuture[AnswerT], None, AnswerT]:
    """Wait for an answer in a command that is executed in steps; return the answer.

    Closing the generator early abandons the answer.
    """
    if not isinstance(answer_or_future, AnswerFuture):
        return answer_or_future
    try:
        while not answer_or_future.is_done:
            yield answer_or_future
    except GeneratorExit:
        answer_or_future.cancel()
        raise
    return answer_or_future.result
