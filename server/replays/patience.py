"""What becomes of readers of the log while some of it cannot be read.

That a file cannot be opened or read says nothing of what is in it: descriptors may have run out, or
a disk been slow to answer. Nothing is passed over; who reads tries again, and a reader that has
tried for long enough gives up and says so to its subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.journal import JournalUnreadable
    from server.replays.listener import Surroundings
    from server.topics.transaction_log import TransactionLog

RETRY_SECONDS: Final = 0.25
"""Until it is tried again."""

_MOST_SECONDS: Final = 30.0
"""After which a reader gives up."""

_SAY_AGAIN_SECONDS: Final = 30.0


class Patience:
    """How long one reader has been trying.

    Args:
        engine: has the log of events and the clock.
        log: the transaction log.
    """

    def __init__(self, engine: Surroundings, log: TransactionLog) -> None:
        self._engine = engine
        self._log = log
        self._since: float | None = None

    def regain(self) -> None:
        """Take note that something has been read."""
        self._since = None

    def is_lost(self, problem: JournalUnreadable) -> bool:
        """Take note that an attempt has failed; whether the reader should give up."""
        now = self._engine.clock.steady()
        if now - self._log.unreadable_said >= _SAY_AGAIN_SECONDS:
            self._log.unreadable_said = now
            self._engine.log.emit("1D-0013", text=problem)
        if self._since is None:
            self._since = now
        return now - self._since >= _MOST_SECONDS
