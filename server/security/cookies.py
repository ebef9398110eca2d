"""Cookies of the admin interface, which stand for credentials that have been shown there.

The transports of a Protocol with TrustedAdmin accept them, too.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

COOKIE: Final = "amps_session"

DEFAULT_SECONDS: Final = 86_400.0
"""How long a cookie is good for, where SessionOptions do not say."""

_MOST_SESSIONS: Final = 1_000
"""Of more, the one goes that has not been used for longest."""


@dataclass(slots=True)
class _Session:
    user: str
    shown: bytes
    ends: float


class Sessions:
    """Cookies, and whom they stand for. Any thread may ask.

    Args:
        seconds: how long one is good for.

    Attributes:
        seconds: see above.
        times_ended: how often any have been ended; what is sent by and by ends then, and begins
            anew for those who still may have it.
    """

    def __init__(self, seconds: float = DEFAULT_SECONDS) -> None:
        self.seconds = seconds
        self.times_ended = 0
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._shown: dict[bytes, str] = {}
        self._lock = threading.RLock()

    def begin(self, user: str, credentials: str) -> str:
        """Give the cookie that stands for credentials; the same as long as it is good."""
        shown = _digest(credentials)
        with self._lock:
            known = self._shown.get(shown)
            if known is not None and self.user_of(known) == user:
                return known
            token = secrets.token_urlsafe(32)
            self._sessions[_digest(token)] = _Session(user, shown, time.monotonic() + self.seconds)
            self._shown[shown] = token
            while len(self._sessions) > _MOST_SESSIONS:
                self._forget(next(iter(self._sessions)))
            return token

    def has(self, user: str, credentials: str) -> bool:
        """Whether there is a cookie already that stands for credentials."""
        with self._lock:
            known = self._shown.get(_digest(credentials))
            return known is not None and self.user_of(known) == user

    def user_of(self, token: str) -> str | None:
        """The user whom a cookie stands for; None if it is not good."""
        key = _digest(token)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if session.ends < time.monotonic():
                self._forget(key)
                return None
            self._sessions.move_to_end(key)
            return session.user

    def end_all(self) -> None:
        """Let no cookie stand for anybody any more."""
        with self._lock:
            self.times_ended += 1
            self._sessions.clear()
            self._shown.clear()

    def end(self, users: Collection[str]) -> None:
        """Let no cookie stand for some users any more."""
        with self._lock:
            self.times_ended += 1
            for key in [key for key, session in self._sessions.items() if session.user in users]:
                self._forget(key)

    def _forget(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        self._shown.pop(session.shown, None)


def cookies_in(header: str) -> list[str]:
    """The sessions that the header Cookie of a request names."""
    parts = (part.strip() for part in header.split(";"))
    return [part.removeprefix(f"{COOKIE}=") for part in parts if part.startswith(f"{COOKIE}=")]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()
