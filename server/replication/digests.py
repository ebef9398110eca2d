"""Checksums of recent messages: does what comes twice say the same?

Two publishers with one name, or one that numbers its messages anew, use a number for two messages.
Only one of them is kept, and that must not pass in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_DIGESTS: Final = 131_072
"""Messages after which the older half is forgotten."""


class Digests:
    """Checksums of the messages that were recorded last.

    Args:
        most: how many are remembered, at most.
    """

    def __init__(self, most: int = MOST_DIGESTS) -> None:
        self._half = max(most // 2, 1)
        self._recent: dict[int, dict[int, int]] = {}
        self._older: dict[int, dict[int, int]] = {}
        self._count = 0

    def note(self, client: int, sequences: Sequence[int], checksums: Sequence[int]) -> None:
        """Remember messages of one identity."""
        if self._count >= self._half:
            self._older, self._recent, self._count = self._recent, {}, 0
        known = self._recent.get(client)
        if known is None:
            known = self._recent[client] = {}
        known.update(zip(sequences, checksums, strict=True))
        self._count += len(sequences)

    def differs(self, client: int, sequence: int, checksum: int) -> bool:
        """Whether a message is remembered that has the same name and another checksum."""
        for known in (self._recent.get(client), self._older.get(client)):
            found = None if known is None else known.get(sequence)
            if found is not None:
                return found != checksum
        return False
