"""Password hashes: scrypt (RFC 7914), written as `$scrypt$ln=15,r=8,p=1$SALT$DIGEST`.

This is the format of the Password Hashing Competition, which other programs use as well: `ln` is
the logarithm of the cost, salt and digest are in base64 without padding. Each hash has its
parameters, so that new ones can cost more than old ones.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

MAX_PASSWORD_SIZE: Final = 4096
"""No real password is longer, and the time of a hash should not depend on the client's input."""

_SALT_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
_MAX_MEMORY: Final = 256 * 1024 * 1024
_MAX_PARALLEL: Final = 16
_MIN_SALT_BYTES: Final = 8
_MIN_DIGEST_BYTES: Final = 16

_FORM: Final = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)


class HashError(ValueError):
    """A text is no usable hash. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class HashCost:
    """The cost parameters of a hash, for the server and for attackers alike.

    Attributes:
        ln: the logarithm of the number of steps, to the base 2.
        r: the block size, in units of 128 bytes.
        p: the number of sequential repetitions of the whole.
    """

    ln: int = 15
    r: int = 8
    p: int = 1

    @property
    def memory(self) -> int:
        """The memory that it needs, in bytes."""
        return 128 * self.r * ((1 << self.ln) + self.p + 2)


DEFAULT_COST: Final = HashCost()
"""32 MiB, and less than a tenth of a second of CPU time."""

MIN_STRONG_COST: Final = 14
"""With a smaller `ln`, brute force is feasible."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The hash of a password."""

    cost: HashCost
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def matches(self, password: str) -> bool:
        """Return whether a password matches; takes the time that the cost implies."""
        derived = _derive(password, self.salt, self.cost, len(self.digest))
        return hmac.compare_digest(derived, self.digest)

    def __str__(self) -> str:
        """Return the form that files have."""
        cost = f"ln={self.cost.ln},r={self.cost.r},p={self.cost.p}"
        return f"$scrypt${cost}${_encode(self.salt)}${_encode(self.digest)}"


def hash_password(password: str, cost: HashCost = DEFAULT_COST) -> PasswordHash:
    """Hash a password with a new salt.

    Raises:
        HashError: it is empty or too long, or the cost is out of bounds.
    """
    if not password:
        raise HashError("the password is empty")
    if len(_octets(password)) > MAX_PASSWORD_SIZE:
        raise HashError(f"the password is longer than {MAX_PASSWORD_SIZE} bytes")
    _check(cost)
    salt = secrets.token_bytes(_SALT_BYTES)
    return PasswordHash(cost, salt, _derive(password, salt, cost, _DIGEST_BYTES))


def make_decoy_hash(cost: HashCost) -> PasswordHash:
    """Return a hash that matches no known password, and takes as long as others of its cost."""
    return PasswordHash(cost, secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_DIGEST_BYTES))


def read_hash(text: str) -> PasswordHash:
    """Parse a hash.

    Raises:
        HashError: it is malformed, or costs more than a server can afford.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise HashError("expected a hash as $scrypt$ln=15,r=8,p=1$SALT$DIGEST")
    cost = HashCost(int(match[1]), int(match[2]), int(match[3]))
    _check(cost)
    try:
        salt, digest = _decode(match[4]), _decode(match[5])
    except binascii.Error:
        raise HashError("expected salt and digest in base64 without padding") from None
    if len(salt) < _MIN_SALT_BYTES or len(digest) < _MIN_DIGEST_BYTES:
        raise HashError(
            f"the salt has {len(salt)} bytes and the digest {len(digest)}: expected at least"
            f" {_MIN_SALT_BYTES} and {_MIN_DIGEST_BYTES}"
        )
    return PasswordHash(cost, salt, digest)


def _check(cost: HashCost) -> None:
    if cost.ln < 1 or cost.r < 1 or not 1 <= cost.p <= _MAX_PARALLEL:
        raise HashError(f"expected ln and r of 1 or more, and p of 1 to {_MAX_PARALLEL}")
    if cost.memory > _MAX_MEMORY:
        raise HashError(
            f"ln={cost.ln},r={cost.r} takes more than {_MAX_MEMORY >> 20} MiB for each logon"
        )


def _derive(password: str, salt: bytes, cost: HashCost, size: int) -> bytes:
    return hashlib.scrypt(
        _octets(password),
        salt=salt,
        n=1 << cost.ln,
        r=cost.r,
        p=cost.p,
        maxmem=2 * _MAX_MEMORY,
        dklen=size,
    )


def _octets(password: str) -> bytes:
    return password.encode(errors="surrogatepass")


def _encode(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
