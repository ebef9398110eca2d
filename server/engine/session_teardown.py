"""The end of a session: its subscriptions are ended incrementally.

From the moment at which a session is closed its client gets no more output, and no more of its
input is executed. Ending ten thousand subscriptions takes longer than a slice, so it is done in
slices. Only then is the client reported as disconnected, and another one may take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.engine.session import Session

_BATCH_SIZE: Final = 20
"""Subscriptions that are ended per slice."""


class SessionTeardown:
    """Ends the subscriptions of a session that has been closed, in slices.

    Args:
        session: the session.
        on_ended: called when all are ended.
    """

    def __init__(self, session: Session, on_ended: Callable[[], None]) -> None:
        self._session = session
        self._on_ended = on_ended
        self._remaining_sub_ids = list(session.subscriptions)[::-1]

    @property
    def task_label(self) -> tuple[str, str]:
        """The client, and `disconnect`. See `EngineTask.task_label`."""
        return self._session.client_name, "disconnect"

    def step(self) -> bool:
        """End some of the subscriptions. See `EngineTask.step`."""
        for _ in range(min(_BATCH_SIZE, len(self._remaining_sub_ids))):
            if self._session.detach_some_topics(self._remaining_sub_ids[-1]):
                return True
            self._end_subscription(self._remaining_sub_ids.pop())
        if self._remaining_sub_ids:
            return True
        self._on_ended()
        return False

    def _end_subscription(self, sub_id: str) -> None:
        session = self._session
        try:
            session.end_subscription(sub_id)
        except Exception as error:  # the other subscriptions must end all the same
            text = f"the end of subscription {sub_id!r} of client[{session.client_name}]"
            session.log.emit("01-0004", text=text, error=repr(error))
