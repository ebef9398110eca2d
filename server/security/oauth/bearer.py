"""Bearer tokens: JSON Web Tokens, checked with the keys of who issues them, without asking them.

A token counts if one of the issuer's public keys has signed it, it is from that issuer, meant for
us, and in force. Which algorithms may have signed it, the configuration says, never the token:
`none` and those with a common secret, for which a public key would do as the secret, do not exist
here. A key is used for its own kind of algorithm only.

The keys (a JSON Web Key Set) come from a URL or a file. They are read again when they are old, and
when a token names a key that is not among them, as after the issuer has changed keys. However many
tokens come, that happens once at a time, and not again before a pause is over, so that nobody can
have us ask for keys by showing made-up tokens. If keys cannot be read, the last ones are used
for some time; after that nobody is let in.

What is wrong with a token is for the log, and never has a part of the token in it.

Source: RFC 7515, RFC 7517, RFC 7519; RFC 8725, JSON Web Token Best Current Practices; RFC 9068.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from joserfc import jwk, jws
from joserfc.errors import BadSignatureError, JoseError, SecurityWarning

from server.base.regular_files import read_regular
from server.security.oauth.tokens import LARGEST_KEY_SET, Expected, KeysError, TokenError
from server.security.web import Endpoint, WebClient, WebError

if TYPE_CHECKING:
    from server.base.log import Log

# Which algorithms are good enough, the configuration says.
warnings.filterwarnings("ignore", category=SecurityWarning)

LARGEST_TOKEN: Final = 16_384
"""Bytes of a token."""

_MOST_KEYS: Final = 100
_LONGEST_NAME: Final = 255
_FEWEST_RSA_BITS: Final = 2048

_FITTING: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    **dict.fromkeys(("EdDSA", "Ed25519"), ("OKP", ("Ed25519",))),
}
"""The kind of key that an algorithm takes, and the curves."""

_TYPES: Final = (None, "jwt", "at+jwt", "application/jwt", "application/at+jwt")
"""What tokens call themselves, in lower case; others, as those that say somebody logs out, are for
other purposes."""


class _Registry(jws.JWSRegistry):
    """How the library reads tokens: issuers write more into headers than the standard names."""

    max_header_length = LARGEST_TOKEN
    max_payload_length = LARGEST_TOKEN


class KeySource(Protocol):
    """Where keys come from.

    Attributes:
        fresh_seconds: for how long keys need not be read again.
        pause_seconds: how long to wait at least before they are.
        last_seconds: for how long they are used if they cannot be.
    """

    fresh_seconds: float
    pause_seconds: float
    last_seconds: float

    async def read(self) -> bytes:
        """Read the keys.

        Raises:
            WebError: they cannot be read.
        """


class KeysOfUrl:
    """Keys that the issuer publishes.

    Args:
        endpoint: where.
        client: asks for them.
    """

    fresh_seconds = 300.0
    pause_seconds = 10.0
    last_seconds = 3600.0

    def __init__(self, endpoint: Endpoint, client: WebClient) -> None:
        self._endpoint = endpoint
        self._client = client

    def __str__(self) -> str:
        return str(self._endpoint)

    async def read(self) -> bytes:
        """See `KeySource`."""
        answer = await self._client.ask("GET", self._endpoint)
        if answer.status != 200:
            raise WebError(f"{self._endpoint}: its status is {answer.status}, expected 200")
        return answer.body


class KeysOfFile:
    """Keys in a file.

    Args:
        path: the file.
    """

    fresh_seconds = 1.0
    pause_seconds = 1.0
    last_seconds = 60.0

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    async def read(self) -> bytes:
        """See `KeySource`."""
        try:
            return await asyncio.to_thread(self._read)
        except OSError as error:
            raise WebError(f"{self._path}: {error.strerror or error}") from None

    def _read(self) -> bytes:
        return read_regular(self._path, LARGEST_KEY_SET)


@dataclass(frozen=True, slots=True)
class _Key:
    """A public key.

    Attributes:
        kid: what it is called; None if it has no name.
        kind: RSA, EC or OKP.
        curve: of the latter two.
        algorithm: the only algorithm that it is for; None for any of its kind.
        key: the key.
    """

    kid: str | None
    kind: str
    curve: str
    algorithm: str | None
    key: Any

    def fits(self, algorithm: str) -> bool:
        """Whether it may have signed with an algorithm."""
        kind, curves = _FITTING[algorithm]
        return (
            self.kind == kind
            and (not curves or self.curve in curves)
            and self.algorithm in (None, algorithm)
        )


class Keys:
    """The keys of an issuer. Used on one event loop.

    Args:
        source: where they come from.
        log: told when they change, and when they cannot be read.
        clock: seconds that only grow.
    """

    def __init__(
        self, source: KeySource, log: Log, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._log = log
        self._clock = clock
        self._lock = asyncio.Lock()
        self._keys: Sequence[_Key] = ()
        self._text = b""
        self._tried = -math.inf
        self._read_at = -math.inf

    async def find(self, kid: str | None, algorithm: str) -> Sequence[_Key]:
        """The keys that may have signed a token.

        Args:
            kid: what the token calls its key; None if it does not say.
            algorithm: with which it is signed.

        Raises:
            KeysError: there are no keys to be had.
            TokenError: none of them could have.
        """
        asked = self._clock()
        if asked - self._read_at >= self._source.fresh_seconds:
            await self._read(asked)
        found = self._fitting(kid, algorithm)
        if not found:
            await self._read(asked)
            found = self._fitting(kid, algorithm)
        if self._clock() - self._read_at > self._source.last_seconds:
            raise KeysError(f"there are no keys of {self._source}, or too old ones")
        if not found:
            raise TokenError(f"the issuer has no {algorithm} key of the name that it gives")
        return found

    def _fitting(self, kid: str | None, algorithm: str) -> Sequence[_Key]:
        return [
            one for one in self._keys if one.fits(algorithm) and (kid is None or one.kid == kid)
        ]

    async def _read(self, asked: float) -> None:
        """Read the keys, unless that has been done since, or too short a time ago."""
        async with self._lock:
            if self._tried >= asked or asked - self._tried < self._source.pause_seconds:
                return
            try:
                text = await self._source.read()
                if text != self._text:
                    self._keys = _read_keys(text, str(self._source))
            except WebError as error:
                self._tried = self._clock()
                self._log.emit("25-0071", problem=str(error))
                return
            self._tried = self._read_at = self._clock()
            if text != self._text:
                self._text = text
                self._log.emit("25-0072", source=str(self._source), count=len(self._keys))


def _read_keys(text: bytes, source: str) -> Sequence[_Key]:
    """Read a key set. Keys of other kinds and for other purposes are passed over.

    Raises:
        WebError: it is none, or nothing of it can be used.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise WebError(f"{source}: it is no key set, which is a JSON object with a list of keys")
    keys = [key for entry in entries[:_MOST_KEYS] if (key := _read_key(entry)) is not None]
    if not keys:
        kinds = "RSA (of 2048 bits or more), EC or OKP"
        raise WebError(f"{source}: there is no public {kinds} key for signatures in the key set")
    return keys


def _read_key(entry: object) -> _Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    uses = entry.get("key_ops", ["verify"])
    if not isinstance(uses, list) or "verify" not in uses:
        return None
    kid, kind, curve, algorithm = (entry.get(name) for name in ("kid", "kty", "crv", "alg"))
    if kind not in ("RSA", "EC", "OKP"):
        return None
    try:
        key = jwk.import_key(entry)
        if isinstance(key, jwk.RSAKey) and key.public_key.key_size < _FEWEST_RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError):  # whatever a stranger's file makes of it
        return None
    return _Key(
        kid if isinstance(kid, str) else None,
        kind,
        curve if isinstance(curve, str) else "",
        algorithm if isinstance(algorithm, str) else None,
        key,
    )


class Verifier:
    """Tells who a token is about.

    Args:
        expected: what tokens have to be like.
        keys: the issuer's keys.
        clock: the time of day, in seconds since 1970.
    """

    def __init__(
        self, expected: Expected, keys: Keys, clock: Callable[[], float] = time.time
    ) -> None:
        self._expected = expected
        self._keys = keys
        self._clock = clock

    async def user_of(self, token: str) -> str:
        """The name of the user that a token is about.

        Raises:
            TokenError: it does not count.
            KeysError: that cannot be told at the moment.
        """
        header = _read_header(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._expected.algorithms:
            allowed = ", ".join(self._expected.algorithms)
            raise TokenError(f"it is not signed with one of the algorithms {allowed}")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise TokenError("the name of its key (kid) is no text")
        payload = self._payload(token, algorithm, await self._keys.find(kid, algorithm))
        claims = _read_object(payload, "its content")
        self._check_times(claims)
        self._check_parties(claims)
        user = claims.get(self._expected.user_claim)
        if not isinstance(user, str) or not user or not user.isprintable():
            raise TokenError(f"its claim {self._expected.user_claim} is no name of a user")
        if len(user) > _LONGEST_NAME:
            raise TokenError(f"its claim {self._expected.user_claim} is too long for a name")
        return user

    def _payload(self, token: str, algorithm: str, keys: Sequence[_Key]) -> bytes:
        registry = _Registry(algorithms=[algorithm], strict_check_header=False)
        for one in keys:
            try:
                return jws.deserialize_compact(token, one.key, registry=registry).payload
            except BadSignatureError:
                continue
            except (JoseError, ValueError, TypeError) as error:
                raise TokenError(f"it is malformed ({type(error).__name__})") from None
        raise TokenError("its signature is wrong")

    def _check_times(self, claims: Mapping[str, object]) -> None:
        now, skew = self._clock(), self._expected.skew
        expiry = _moment(claims, "exp")
        if expiry is None:
            raise TokenError("it does not say when it expires (exp)")
        if now >= expiry + skew:
            raise TokenError(f"it expired {now - expiry:.0f} seconds ago")
        for name in ("nbf", "iat"):
            begin = _moment(claims, name)
            if begin is not None and now < begin - skew:
                raise TokenError(f"it begins to count in {begin - now:.0f} seconds ({name})")

    def _check_parties(self, claims: Mapping[str, object]) -> None:
        if claims.get("iss") != self._expected.issuer:
            raise TokenError(f"its issuer (iss) is not {self._expected.issuer}")
        named = claims.get("aud")
        audiences = named if isinstance(named, list) else [named]
        if not any(one in self._expected.audiences for one in audiences):
            wanted = " or ".join(self._expected.audiences)
            raise TokenError(f"it is meant for others: its audience (aud) does not have {wanted}")


def _read_header(token: str) -> Mapping[str, Any]:
    """The header of a token, of which nothing is to be believed yet.

    Raises:
        TokenError: it is no token that could be checked.
    """
    if len(token) > LARGEST_TOKEN:
        raise TokenError(f"it has more than {LARGEST_TOKEN} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError("it is no signed JSON Web Token: expected three parts")
    try:
        decoded = urlsafe_b64decode(parts[0].encode("ascii") + b"=" * (-len(parts[0]) % 4))
    except ValueError:
        raise TokenError("its header is no base64") from None
    header = _read_object(decoded, "its header")
    if "crit" in header or header.get("b64") is False:
        raise TokenError("it wants extensions (crit) that are not there")
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise TokenError("it is another kind of token (typ), expected JWT or at+jwt")
    return header


def _read_object(text: bytes, what: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise TokenError(f"{what} is no JSON") from None
    if not isinstance(content, dict):
        raise TokenError(f"{what} is no JSON object")
    return content


def _moment(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -1e15 < value < 1e15:  # type: ignore[operator]  # it is a number
        raise TokenError(f"its claim {name} is no time")
    return float(value)  # type: ignore[arg-type]  # as above
