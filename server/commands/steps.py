"""Commands that are carried out step by step, while others have their turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from server.security.later import Pending

Steps: TypeAlias = Iterator[bool | Pending[Any]]
"""A command, step by step.

Each says whether the next one may follow at once, or has to wait a little; or what it waits for.
"""


class Waiting(Protocol):
    """What a peer has sent, and waits to be obeyed."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything."""

    @property
    def is_lost(self) -> bool:
        """Whether the peer has gone, while there was more of what it sent to be obeyed."""

    def finish(self, steps: Steps) -> None:
        """Obey nothing else before the command at hand is done.

        Args:
            steps: what is left of it; they must not raise. Should the session be closed meanwhile,
                they are not done.
        """
