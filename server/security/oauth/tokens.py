"""The requirements of tokens, and the errors of tokens that do not meet them; see `bearer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_KEY_SET_SIZE: Final = 1_048_576
"""Size limit of a key set file, in bytes."""

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Supported signature algorithms: only those where the key to verify a token cannot sign one."""


class BearerTokenError(Exception):
    """A token is not valid. The text gives the reason, and has no part of the token in it."""


class KeysError(Exception):
    """No keys are available to verify tokens. The text names their source."""


@dataclass(frozen=True, slots=True)
class TokenRequirements:
    """The requirements that a token must meet.

    Attributes:
        issuer: the required issuer.
        audiences: the accepted audiences; one of them is enough.
        algorithms: the accepted signature algorithms, out of `ALGORITHMS`.
        user_claim: the claim that has the name of the user.
        skew: tolerance for the difference between the issuer's clock and ours, in seconds.
    """

    issuer: str
    audiences: Sequence[str]
    algorithms: Sequence[str]
    user_claim: str
    skew: float
