"""Session cookies of the admin interface, which replace credentials that a client has sent before.

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
"""Lifetime of a session where SessionOptions do not set it."""

_MAX_SESSIONS: Final = 1_000
"""Beyond it, the least recently used session is dropped."""


@dataclass(slots=True)
class _CookieSession:
    user: str
    credentials_digest: bytes
    expires_s: float


class CookieSessions:
    """Sessions, by cookie. Thread-safe.

    Args:
        lifetime_s: lifetime of a session.

    Attributes:
        end_count: how often sessions or streaming responses have been ended. A change of it ends
            streaming responses; clients that still have access start them again.
    """

    def __init__(self, lifetime_s: float = DEFAULT_SECONDS) -> None:
        self.lifetime_s = lifetime_s
        self.end_count = 0
        self._sessions: OrderedDict[bytes, _CookieSession] = OrderedDict()
        self._tokens: dict[bytes, str] = {}
        self._lock = threading.RLock()

    def begin_session(self, user: str, credentials: str) -> str:
        """Begin a session and return its cookie; equal credentials have one while it is valid."""
        shown = _digest(credentials)
        with self._lock:
            current = self._tokens.get(shown)
            if current is not None and self.user_of(current) == user:
                return current
            token = secrets.token_urlsafe(32)
            self._sessions[_digest(token)] = _CookieSession(
                user, shown, time.monotonic() + self.lifetime_s
            )
            self._tokens[shown] = token
            while len(self._sessions) > _MAX_SESSIONS:
                self._remove(next(iter(self._sessions)))
            return token

    def has_session(self, user: str, credentials: str) -> bool:
        """Return whether there is a valid cookie for credentials."""
        with self._lock:
            token = self._tokens.get(_digest(credentials))
            return token is not None and self.user_of(token) == user

    def user_of(self, token: str) -> str | None:
        """Return the user of a cookie; None if the cookie is not valid."""
        key = _digest(token)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if session.expires_s < time.monotonic():
                self._remove(key)
                return None
            self._sessions.move_to_end(key)
            return session.user

    def end_all(self) -> None:
        """End all sessions."""
        with self._lock:
            self.end_count += 1
            self._sessions.clear()
            self._tokens.clear()

    def end_sessions(self, users: Collection[str]) -> None:
        """End the sessions of users."""
        with self._lock:
            self.end_count += 1
            for key in [key for key, session in self._sessions.items() if session.user in users]:
                self._remove(key)

    def end_streams(self) -> None:
        """End streaming responses, and no session: permissions may have changed."""
        with self._lock:
            self.end_count += 1

    def _remove(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        self._tokens.pop(session.credentials_digest, None)


def cookies_in(header: str) -> list[str]:
    """Return the session cookies in the Cookie header of a request."""
    parts = (part.strip() for part in header.split(";"))
    return [part.removeprefix(f"{COOKIE}=") for part in parts if part.startswith(f"{COOKIE}=")]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()
