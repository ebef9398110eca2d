"""What tokens have to be like, and what can be wrong with them; `bearer` checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

LARGEST_KEY_SET: Final = 1_048_576
"""Bytes of a file with keys."""

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""With which a token may be signed: those where nobody who checks a token can make one."""


class TokenError(Exception):
    """A token does not count. The text says why, and has no part of the token in it."""


class KeysError(Exception):
    """There are no keys to check tokens with. The text says whose."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token has to be like.

    Attributes:
        issuer: who has to have issued it.
        audiences: whom it may be meant for; one of them is enough.
        algorithms: with which of `ALGORITHMS` it may be signed.
        user_claim: what of it is the name of the user.
        skew: seconds by which the issuer's clock may differ from ours.
    """

    issuer: str
    audiences: Sequence[str]
    algorithms: Sequence[str]
    user_claim: str
    skew: float


class Verifying(Protocol):
    """What checks tokens."""

    async def user_of(self, token: str) -> str:
        """The name of the user that a token is about.

        Raises:
            TokenError: it does not count.
            KeysError: that cannot be told at the moment.
        """
