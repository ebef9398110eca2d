"""Bearer tokens: JSON Web Tokens, verified with the issuer's keys, without a request to the issuer.

A token is valid if one of the issuer's public keys has signed it, it is from that issuer, it is for
our audience, and it is in force. The configuration selects the accepted algorithms, never the
token. `none` and the algorithms with a shared secret, where a public key could serve as the secret,
are not supported. A key is used for its own kind of algorithm only.

The keys (a JSON Web Key Set) come from a URL or a file. They are read again when they are old, and
when a token names an unknown key, as after a key rotation. Regardless of the number of tokens,
there is one read at a time, and a pause after it, so that made-up tokens cannot cause a flood of
requests. If keys cannot be read, the last ones are used for some time; after that, no token is
accepted.

The reason why a token is refused goes to the log, and never has a part of the token in it.

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

from server.security.http_client import Endpoint, HttpClient, HttpClientError
from server.security.oauth.tokens import (
    MAX_KEY_SET_SIZE,
    BearerTokenError,
    KeysError,
    TokenRequirements,
)
from server.util.safe_open import read_regular

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

# The configuration decides which algorithms are secure enough.
warnings.filterwarnings("ignore", category=SecurityWarning)

MAX_TOKEN_SIZE: Final = 16_384
"""Size limit of a token, in bytes."""

_MAX_KEYS: Final = 100
_MAX_NAME_LENGTH: Final = 255
_MIN_RSA_BITS: Final = 2048

_FITTING: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    **dict.fromkeys(("EdDSA", "Ed25519"), ("OKP", ("Ed25519",))),
}
"""The kind of key that an algorithm needs, and the curves."""

_TYPES: Final = (None, "jwt", "at+jwt", "application/jwt", "application/at+jwt")
"""Accepted values of `typ`, in lower case. Others, such as logout tokens, have other purposes."""


class _Registry(jws.JWSRegistry):
    """Settings of the JWS library: issuers put more into headers than the standard defines."""

    max_header_length = MAX_TOKEN_SIZE
    max_payload_length = MAX_TOKEN_SIZE


class TokenKeySource(Protocol):
    """A source of keys.

    Attributes:
        fresh_seconds: age up to which keys are not read again.
        retry_seconds: minimum time between two reads.
        max_age_seconds: age up to which keys are used if they cannot be read again.
    """

    fresh_seconds: float
    retry_seconds: float
    max_age_seconds: float

    async def read(self) -> bytes:
        """Read the keys.

        Raises:
            HttpClientError: they cannot be read.
        """


class UrlKeySource:
    """Keys that the issuer publishes at a URL.

    Args:
        endpoint: the URL.
        client: sends the requests.
    """

    fresh_seconds = 300.0
    retry_seconds = 10.0
    max_age_seconds = 3600.0

    def __init__(self, endpoint: Endpoint, client: HttpClient) -> None:
        self._endpoint = endpoint
        self._client = client

    def __str__(self) -> str:
        return str(self._endpoint)

    async def read(self) -> bytes:
        """See `TokenKeySource`."""
        answer = await self._client.request("GET", self._endpoint)
        if answer.status != 200:
            raise HttpClientError(f"{self._endpoint}: its status is {answer.status}, expected 200")
        return answer.body


class FileKeySource:
    """Keys in a file.

    Args:
        path: the file.
    """

    fresh_seconds = 1.0
    retry_seconds = 1.0
    max_age_seconds = 60.0

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    async def read(self) -> bytes:
        """See `TokenKeySource`."""
        try:
            return await asyncio.to_thread(self._read)
        except OSError as error:
            raise HttpClientError(f"{self._path}: {error.strerror or error}") from None

    def _read(self) -> bytes:
        return read_regular(self._path, MAX_KEY_SET_SIZE)


@dataclass(frozen=True, slots=True)
class _PublicKey:
    """A public key.

    Attributes:
        kid: its name; None if it has none.
        kind: RSA, EC or OKP.
        curve: the curve of EC and OKP keys.
        algorithm: the only algorithm that it is for; None for any of its kind.
        key: the key.
    """

    kid: str | None
    kind: str
    curve: str
    algorithm: str | None
    key: Any

    def can_verify(self, algorithm: str) -> bool:
        """Return whether it can verify signatures of an algorithm."""
        kind, curves = _FITTING[algorithm]
        return (
            self.kind == kind
            and (not curves or self.curve in curves)
            and self.algorithm in (None, algorithm)
        )


class IssuerKeys:
    """Caches the keys of an issuer. Used on one event loop.

    Args:
        source: the source of the keys.
        log: records changes of the keys, and failures to read them.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, source: TokenKeySource, log: ServerLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._log = log
        self._clock = clock
        self._lock = asyncio.Lock()
        self._keys: Sequence[_PublicKey] = ()
        self._text = b""
        self._tried_at = -math.inf
        self._read_at = -math.inf

    async def find(self, kid: str | None, algorithm: str) -> Sequence[_PublicKey]:
        """Return the keys that may have signed a token.

        Args:
            kid: the name of the key in the token; None if it has none.
            algorithm: the algorithm of the signature.

        Raises:
            KeysError: no keys are available.
            BearerTokenError: no key matches.
        """
        requested_s = self._clock()
        if requested_s - self._read_at >= self._source.fresh_seconds:
            await self._refresh(requested_s)
        keys = self._matching_keys(kid, algorithm)
        if not keys:
            await self._refresh(requested_s)
            keys = self._matching_keys(kid, algorithm)
        if self._clock() - self._read_at > self._source.max_age_seconds:
            raise KeysError(f"there are no keys of {self._source}, or too old ones")
        if not keys:
            raise BearerTokenError(f"the issuer has no {algorithm} key of the name that it gives")
        return keys

    def _matching_keys(self, kid: str | None, algorithm: str) -> Sequence[_PublicKey]:
        return [
            key
            for key in self._keys
            if key.can_verify(algorithm) and (kid is None or key.kid == kid)
        ]

    async def _refresh(self, requested_s: float) -> None:
        """Read the keys, unless another call has read them since, or the pause is not over."""
        async with self._lock:
            if (
                self._tried_at >= requested_s
                or requested_s - self._tried_at < self._source.retry_seconds
            ):
                return
            try:
                text = await self._source.read()
                if text != self._text:
                    self._keys = _read_keys(text, str(self._source))
            except HttpClientError as error:
                self._tried_at = self._clock()
                self._log.emit("25-0071", problem=str(error))
                return
            self._tried_at = self._read_at = self._clock()
            if text != self._text:
                self._text = text
                self._log.emit("25-0072", source=str(self._source), count=len(self._keys))


def _read_keys(text: bytes, source: str) -> Sequence[_PublicKey]:
    """Parse a key set. Keys of other kinds and for other purposes are ignored.

    Raises:
        HttpClientError: it is malformed, or has no usable key.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise HttpClientError(
            f"{source}: it is no key set, which is a JSON object with a list of keys"
        )
    keys = [key for entry in entries[:_MAX_KEYS] if (key := _read_key(entry)) is not None]
    if not keys:
        kinds = "RSA (of 2048 bits or more), EC or OKP"
        raise HttpClientError(
            f"{source}: there is no public {kinds} key for signatures in the key set"
        )
    return keys


def _read_key(entry: object) -> _PublicKey | None:
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
        if isinstance(key, jwk.RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
            return None
    except (JoseError, ValueError, TypeError, KeyError):  # from malformed keys of third parties
        return None
    return _PublicKey(
        kid if isinstance(kid, str) else None,
        kind,
        curve if isinstance(curve, str) else "",
        algorithm if isinstance(algorithm, str) else None,
        key,
    )


class BearerTokenVerifier:
    """Verifies tokens, and identifies their users.

    Args:
        expected: the requirements for tokens.
        keys: the issuer's keys.
    """

    def __init__(self, expected: TokenRequirements, keys: IssuerKeys) -> None:
        self._expected = expected
        self._keys = keys

    async def user_of(self, token: str) -> str:
        """Return the name of the user that a token identifies.

        Raises:
            BearerTokenError: the token is not valid.
            KeysError: it cannot be verified at the moment.
        """
        header = _read_header(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._expected.algorithms:
            allowed = ", ".join(self._expected.algorithms)
            raise BearerTokenError(f"it is not signed with one of the algorithms {allowed}")
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise BearerTokenError("the name of its key (kid) is no text")
        payload = self._payload(token, algorithm, await self._keys.find(kid, algorithm))
        claims = _read_object(payload, "its content")
        self._check_times(claims)
        self._check_parties(claims)
        user = claims.get(self._expected.user_claim)
        if not isinstance(user, str) or not user or not user.isprintable():
            raise BearerTokenError(f"its claim {self._expected.user_claim} is no name of a user")
        if len(user) > _MAX_NAME_LENGTH:
            raise BearerTokenError(f"its claim {self._expected.user_claim} is too long for a name")
        return user

    def _payload(self, token: str, algorithm: str, keys: Sequence[_PublicKey]) -> bytes:
        registry = _Registry(algorithms=[algorithm], strict_check_header=False)
        for public_key in keys:
            try:
                return jws.deserialize_compact(token, public_key.key, registry=registry).payload
            except BadSignatureError:
                continue
            except (JoseError, ValueError, TypeError) as error:
                raise BearerTokenError(f"it is malformed ({type(error).__name__})") from None
        raise BearerTokenError("its signature is wrong")

    def _check_times(self, claims: Mapping[str, object]) -> None:
        now, skew = time.time(), self._expected.skew
        expiry = _moment(claims, "exp")
        if expiry is None:
            raise BearerTokenError("it does not say when it expires (exp)")
        if now >= expiry + skew:
            raise BearerTokenError(f"it expired {now - expiry:.0f} seconds ago")
        for name in ("nbf", "iat"):
            begin = _moment(claims, name)
            if begin is not None and now < begin - skew:
                raise BearerTokenError(f"it begins to count in {begin - now:.0f} seconds ({name})")

    def _check_parties(self, claims: Mapping[str, object]) -> None:
        if claims.get("iss") != self._expected.issuer:
            raise BearerTokenError(f"its issuer (iss) is not {self._expected.issuer}")
        named = claims.get("aud")
        audiences = named if isinstance(named, list) else [named]
        if not any(audience in self._expected.audiences for audience in audiences):
            expected = " or ".join(self._expected.audiences)
            raise BearerTokenError(
                f"it is meant for others: its audience (aud) does not have {expected}"
            )


def _read_header(token: str) -> Mapping[str, Any]:
    """Return the header of a token, which is not trustworthy yet.

    Raises:
        BearerTokenError: the token is malformed, or not supported.
    """
    if len(token) > MAX_TOKEN_SIZE:
        raise BearerTokenError(f"it has more than {MAX_TOKEN_SIZE} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise BearerTokenError("it is no signed JSON Web Token: expected three parts")
    try:
        decoded = urlsafe_b64decode(parts[0].encode("ascii") + b"=" * (-len(parts[0]) % 4))
    except ValueError:
        raise BearerTokenError("its header is no base64") from None
    header = _read_object(decoded, "its header")
    if "crit" in header or header.get("b64") is False:
        raise BearerTokenError("it wants extensions (crit) that are not there")
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise BearerTokenError("it is another kind of token (typ), expected JWT or at+jwt")
    return header


def _read_object(text: bytes, subject: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise BearerTokenError(f"{subject} is no JSON") from None
    if not isinstance(content, dict):
        raise BearerTokenError(f"{subject} is no JSON object")
    return content


def _moment(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -1e15 < value < 1e15:  # type: ignore[operator]  # it is a number
        raise BearerTokenError(f"its claim {name} is no time")
    return float(value)  # type: ignore[arg-type]  # as above
