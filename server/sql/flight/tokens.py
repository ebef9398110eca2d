"""Bearer tokens: a logon returns one, and further calls send it in place of the password.

A token is of one transport and one user. It ends an hour after its last use, when its client closes
the session, and when the user's permissions are reset. It outlives the connection, since clients
of gRPC connect again by themselves.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_TOKENS: Final = 10_000
"""Tokens of an instance; beyond it, the least recently used token ends."""

TOKEN_IDLE_TIMEOUT_S: Final = 3_600.0
"""Time after its last use at which a token ends."""

_TOKEN_BYTES: Final = 32


class TokenGrant(NamedTuple):
    """The user of a token.

    Attributes:
        transport: the name of the transport.
        user: the name of the user.
        used_s: when it was used last, of the steady clock.
    """

    transport: str
    user: str
    used_s: float


class BearerTokens:
    """The tokens of an instance. Methods may be called from any thread.

    Args:
        now: a steady clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now: Final = now
        self._lock: Final = threading.Lock()
        self._grants: OrderedDict[str, TokenGrant] = OrderedDict()  # by their last use

    @staticmethod
    def make() -> str:
        """Return a new token, which is valid from `add` on."""
        return secrets.token_urlsafe(_TOKEN_BYTES)

    def add(self, token: str, transport: str, user: str) -> None:
        """Grant a token to a user, after a logon."""
        with self._lock:
            self._remove_expired()
            self._grants[token] = TokenGrant(transport, user, self._now())
            if len(self._grants) > MAX_TOKENS:
                self._grants.popitem(last=False)

    def find(self, token: str, transport: str) -> TokenGrant | None:
        """Return the grant of a token, and note its use; None if it is not valid."""
        with self._lock:
            self._remove_expired()
            grant = self._grants.get(token)
            if grant is None or grant.transport != transport:
                return None
            self._grants[token] = grant._replace(used_s=self._now())
            self._grants.move_to_end(token)
            return grant

    def remove(self, token: str) -> None:
        """End a token."""
        with self._lock:
            self._grants.pop(token, None)

    def forget(self, transport: str, user: str | None) -> None:
        """End the tokens of a transport's user; None for all of its users."""
        with self._lock:
            ended = [
                token
                for token, grant in self._grants.items()
                if grant.transport == transport and user in (None, grant.user)
            ]
            for token in ended:
                del self._grants[token]

    def _remove_expired(self) -> None:
        earliest_s = self._now() - TOKEN_IDLE_TIMEOUT_S
        while self._grants:
            token, grant = next(iter(self._grants.items()))
            if grant.used_s > earliest_s:
                return
            del self._grants[token]
