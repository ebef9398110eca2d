"""A cache of credentials that were accepted a moment ago.

A monitoring system sends its user and password with each request, every second, and keeps no
cookies. So that a directory or a web service is not queried each time, accepted credentials stay
valid for a while, for requests from the same address. The cache has digests only, with a key of
this run.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_SECONDS: Final = 30.0
"""How long they stay valid."""

_MAX_ENTRIES: Final = 1_000
"""Beyond that, the oldest are evicted."""


@dataclass(frozen=True, slots=True)
class _CachedCredential:
    """An entry of the cache.

    Attributes:
        user: the user that they were accepted for.
        expires_s: when they expire.
        epoch: see `CredentialCache.find`.
    """

    user: str
    expires_s: float
    epoch: object


class CredentialCache:
    """The cache of accepted credentials."""

    def __init__(self) -> None:
        self._key: Final = secrets.token_bytes(32)
        self._accepted: OrderedDict[bytes, _CachedCredential] = OrderedDict()

    def find(self, authorization: str, peer: str, epoch: object) -> str | None:
        """Return the user that credentials were accepted for; None if they have to be checked.

        Args:
            authorization: the credentials.
            peer: the address of the client, with the port.
            epoch: the security epoch; entries of another one are not valid.
        """
        digest = self._digest(authorization, peer)
        entry = self._accepted.get(digest)
        if entry is None:
            return None
        if entry.epoch != epoch or entry.expires_s <= time.monotonic():
            del self._accepted[digest]
            return None
        return entry.user

    def add(self, authorization: str, peer: str, epoch: object, user: str) -> None:
        """Add accepted credentials. See `find`."""
        digest = self._digest(authorization, peer)
        self._accepted.pop(digest, None)
        self._accepted[digest] = _CachedCredential(user, time.monotonic() + _SECONDS, epoch)
        if len(self._accepted) > _MAX_ENTRIES:
            self._accepted.popitem(last=False)

    def _digest(self, authorization: str, peer: str) -> bytes:
        host = peer.rpartition(":")[0]
        text = f"{host}\0{authorization}".encode(errors="surrogateescape")
        return hashlib.blake2b(text, digest_size=32, key=self._key).digest()
