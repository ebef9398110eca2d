"""The schedule of the attempts to connect: when to try which server.

    reconnection.seconds_until_due(now)
    ...connect to reconnection.server...
    reconnection.record_failure(now, error)
        or  reconnection.record_success()  and later  reconnection.record_session_end()

The callers supply the clock, sleep, and connect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amperage.client.backoff import Backoff
from amperage.client.errors import ClientError, GaveUpError, LogonError, NameInUseError
from amperage.client.servers import Server, ServerChooser

ATTEMPTS_GO_ON: Final = "; attempts go on until the client is closed"
"""The end of the error of a `connect` that has timed out."""


class Reconnection:
    """The schedule of one client.

    Args:
        chooser: the servers.
        backoff: the delays and limits.
        random_fraction: returns random numbers from 0 to 1 for the jitter.
    """

    def __init__(
        self, chooser: ServerChooser, backoff: Backoff, random_fraction: Callable[[], float]
    ) -> None:
        self._chooser = chooser
        self._backoff = backoff
        self._random_fraction = random_fraction
        self._failures = 0
        self._rounds = 0
        self._begin_s: float | None = None
        self._due_s = 0.0
        self._last_error: ClientError | None = None

    def restart(self) -> None:
        """Reset the state, and begin with the first server."""
        self._chooser.reset()
        self._reset_failures()

    def seconds_until_due(self, now: float) -> float:
        """Return the seconds until the next attempt; 0 if it is due.

        Args:
            now: the time in seconds, on any monotonic clock.

        Raises:
            GaveUpError: there will be no more attempts.
        """
        if self._begin_s is None:
            self._begin_s = now
        if self._chooser.current is None:
            raise GaveUpError(f"every server has refused the logon; the last: {self._last_error}")
        if self._backoff.is_over(self._failures, now - self._begin_s) and self._failures:
            raise GaveUpError(
                f"no server could be reached in {self._failures} attempts;"
                f" the last: {self._last_error}"
            )
        return max(0.0, self._due_s - now)

    @property
    def failure_text(self) -> str:
        """The reason for the lack of a session, as part of an error message."""
        reason = f"the last attempt: {self._last_error}" if self._last_error else "not connected"
        return f"{reason}{ATTEMPTS_GO_ON}"

    @property
    def server(self) -> Server:
        """The server of the next attempt; call `seconds_until_due` first, which may raise."""
        server = self._chooser.current
        if server is None:
            raise GaveUpError("every server has refused the logon")
        return server

    def record_failure(self, now: float, error: ClientError) -> None:
        """Record that an attempt has failed.

        A server that refuses the logon is removed from the schedule, because it would refuse again.
        The exception is a client name in use: that may be of our own lost connection.
        """
        self._failures += 1
        self._last_error = error
        is_final = isinstance(error, LogonError) and not isinstance(error, NameInUseError)
        ends_round = self._chooser.refused() if is_final else self._chooser.failed()
        if ends_round:
            self._rounds += 1
            self._due_s = now + self._backoff.delay(self._rounds, self._random_fraction())

    def record_success(self) -> None:
        """Record that an attempt has established a session."""
        self._chooser.connected()
        self._reset_failures()

    def record_session_end(self) -> None:
        """Record that the established session has ended."""
        self._chooser.lost()

    def _reset_failures(self) -> None:
        self._failures = self._rounds = 0
        self._begin_s = None
        self._due_s = 0.0
        self._last_error = None
