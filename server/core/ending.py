"""The end of a session: what it had going goes a little at a time.

From the moment at which a session is closed its client gets nothing more, and nothing more of what
it has sent is obeyed. Ten thousand subscriptions take longer to be ended than a slice; that is done
in turns, and only then is it said that the client has gone, and may another one take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from server.base.log import Log

_AT_ONCE: Final = 20
"""Subscriptions that are ended in a slice."""


class Closed(Protocol):
    """A session that has been closed."""

    @property
    def client_name(self) -> str:
        """The name of its client."""

    @property
    def log(self) -> Log:
        """Where is said what fails."""

    @property
    def subscriptions(self) -> Collection[str]:
        """The ids of its subscriptions, in the order in which they were made."""

    def loosen(self, sub_id: str) -> bool:
        """Prepare the end of a subscription a little further; whether that takes more."""

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription."""


class Ending:
    """What is left to be ended of a session that has been closed.

    Args:
        session: the session.
        then: called when nothing is left.
    """

    def __init__(self, session: Closed, then: Callable[[], None]) -> None:
        self._session = session
        self._then = then
        self._left = list(session.subscriptions)[::-1]

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return self._session.client_name, "disconnect"

    def step(self) -> bool:
        """End some of the subscriptions. See `Sliced.step`."""
        for _ in range(min(_AT_ONCE, len(self._left))):
            if self._session.loosen(self._left[-1]):
                return True
            self._end(self._left.pop())
        if self._left:
            return True
        self._then()
        return False

    def _end(self, sub_id: str) -> None:
        session = self._session
        try:
            session.end_subscription(sub_id)
        except Exception as error:  # whatever it is, the others end all the same
            text = f"the end of subscription {sub_id!r} of client[{session.client_name}]"
            session.log.emit("01-0004", text=text, error=repr(error))
