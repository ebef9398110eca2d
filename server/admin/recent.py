"""Credentials that have been accepted a moment ago.

A monitoring system shows its user and password with each request, every second, and keeps no
cookies. So that a directory or a web service is not asked each time, what has been accepted counts
for a while, for requests from the same address. What is kept are digests, with a key of this run.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_SECONDS: Final = 30.0
"""How long it counts."""

_MOST: Final = 1_000
"""Of more, the oldest goes."""


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What has been accepted.

    Attributes:
        user: as whom.
        ends: when that counts no more.
        era: see `Recent.find`.
    """

    user: str
    ends: float
    era: object


class Recent:
    """What has been accepted a moment ago."""

    def __init__(self) -> None:
        self._key: Final = secrets.token_bytes(32)
        self._accepted: OrderedDict[bytes, _Accepted] = OrderedDict()

    def find(self, shown: str, peer: str, era: object) -> str | None:
        """As whom credentials have been accepted; None if they are to be checked.

        Args:
            shown: what is shown.
            peer: the address that it comes from, with the port.
            era: what was accepted in another one counts no more.
        """
        digest = self._digest(shown, peer)
        known = self._accepted.get(digest)
        if known is None:
            return None
        if known.era != era or known.ends <= time.monotonic():
            del self._accepted[digest]
            return None
        return known.user

    def keep(self, shown: str, peer: str, era: object, user: str) -> None:
        """Credentials have been accepted. See `find`."""
        digest = self._digest(shown, peer)
        self._accepted.pop(digest, None)
        self._accepted[digest] = _Accepted(user, time.monotonic() + _SECONDS, era)
        if len(self._accepted) > _MOST:
            self._accepted.popitem(last=False)

    def _digest(self, shown: str, peer: str) -> bytes:
        host = peer.rpartition(":")[0]
        text = f"{host}\0{shown}".encode(errors="surrogateescape")
        return hashlib.blake2b(text, digest_size=32, key=self._key).digest()
