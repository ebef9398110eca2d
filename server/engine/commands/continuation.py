"""Commands that are executed in steps, between which other tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from server.security.deferred import AnswerFuture

CommandSteps: TypeAlias = Iterator[bool | AnswerFuture[Any]]
"""A command in steps.

Each step returns whether the next one may follow at once, or has to wait a little; or it returns
a pending value to wait for.
"""


class PendingInput(Protocol):
    """An input buffer: commands received from a peer and not executed yet."""

    @property
    def is_waiting(self) -> bool:
        """True if it is not empty."""

    @property
    def is_lost(self) -> bool:
        """True if the peer has disconnected before all its commands were executed."""

    def finish(self, steps: CommandSteps) -> None:
        """Execute no other command before the current one is done.

        Args:
            steps: its remaining steps; they must not raise. They are not executed if the session is
                closed meanwhile.
        """
