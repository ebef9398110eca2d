"""When to try which server again: a plan of attempts in anybody's time.

    due = plan.due_in(now)        seconds until the next attempt
    ...try plan.server...
    plan.failed(now, error)  or  plan.succeeded()  and, one day,  plan.lost(now)

The shells bring the clock, sleep, and do the connecting.
"""

from __future__ import annotations

from collections.abc import Callable

from amperage.client.backoff import Backoff
from amperage.client.errors import ClientError, GaveUpError, LogonError, NameInUseError
from amperage.client.servers import Server, ServerChooser


class Reconnection:
    """The plan of one client.

    Args:
        chooser: the servers.
        backoff: the delays and limits.
        chance: gives numbers from 0 to 1 for the jitter.
    """

    def __init__(
        self, chooser: ServerChooser, backoff: Backoff, chance: Callable[[], float]
    ) -> None:
        self._chooser = chooser
        self._backoff = backoff
        self._chance = chance
        self._failures = 0
        self._rounds = 0
        self._began: float | None = None
        self._due = 0.0
        self._last_error: ClientError | None = None

    def restart(self) -> None:
        """Begin with the first server, as if nothing had happened."""
        self._chooser.reset()
        self._forget_failures()

    def due_in(self, now: float) -> float:
        """Seconds until the next attempt; 0 if it is due.

        Args:
            now: the time in seconds, on any clock that runs evenly.

        Raises:
            GaveUpError: there are to be no more attempts.
        """
        if self._began is None:
            self._began = now
        if self._chooser.current is None:
            raise GaveUpError(f"every server has refused the logon; the last: {self._last_error}")
        if self._backoff.is_over(self._failures, now - self._began) and self._failures:
            raise GaveUpError(
                f"no server could be reached in {self._failures} attempts;"
                f" the last: {self._last_error}"
            )
        return max(0.0, self._due - now)

    @property
    def trouble(self) -> str:
        """Why there is no session, and that attempts go on, for an error message."""
        reason = f"the last attempt: {self._last_error}" if self._last_error else "not connected"
        return f"{reason}; attempts go on until the client is closed"

    @property
    def server(self) -> Server:
        """The server that the next attempt is for; `due_in` has said that there is one."""
        server = self._chooser.current
        if server is None:
            raise GaveUpError("every server has refused the logon")
        return server

    def failed(self, now: float, error: ClientError) -> None:
        """An attempt has failed.

        A refused logon would be refused again, so that server is left out from now on; but a client
        name in use may well be that of our own lost connection.
        """
        self._failures += 1
        self._last_error = error
        is_final = isinstance(error, LogonError) and not isinstance(error, NameInUseError)
        ends_round = self._chooser.refused() if is_final else self._chooser.failed()
        if ends_round:
            self._rounds += 1
            self._due = now + self._backoff.delay(self._rounds, self._chance())

    def succeeded(self) -> None:
        """An attempt has led to an established session."""
        self._chooser.connected()
        self._forget_failures()

    def lost(self) -> None:
        """The established session has ended."""
        self._chooser.lost()

    def _forget_failures(self) -> None:
        self._failures = self._rounds = 0
        self._began = None
        self._due = 0.0
        self._last_error = None
