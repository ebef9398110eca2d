"""Answers to the authentication challenges of a web service: Basic and Digest.

Digest is preferred, with the strongest of its algorithms; passwords are sent in the clear only if a
service accepts nothing else.

Source: RFC 7235 (challenges), RFC 7616 (Digest), RFC 7617 (Basic).
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NEXT: Final = re.compile(r"[\s,]*")
_PARAMETER: Final = re.compile(rf'({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))\s*(?=,|$)')
_SCHEME: Final = re.compile(rf"({_WORD})(?:\s+[A-Za-z0-9._~+/-]+=*\s*(?=,|$)|\s+|(?=,|$))")
_ESCAPED: Final = re.compile(r"\\(.)")

HashFunction: TypeAlias = Callable[[str], str]


class ChallengeError(ValueError):
    """A challenge cannot be answered. The text gives the reason."""


@dataclass(frozen=True, slots=True)
class HttpChallenge:
    """A challenge of a service.

    Attributes:
        scheme: the authentication scheme, in lower case.
        parameters: its parameters; names in lower case.
    """

    scheme: str
    parameters: Mapping[str, str]

    @property
    def is_stale(self) -> bool:
        """True if the credentials were good, and only the nonce has expired."""
        return self.parameters.get("stale", "").lower() == "true"


def read_challenges(headers: Iterable[str]) -> list[HttpChallenge]:
    """Parse `WWW-Authenticate` headers, as far as valid; each may have several challenges."""
    return [challenge for header in headers for challenge in _read(header)]


def _read(header: str) -> list[HttpChallenge]:
    challenges_read: list[HttpChallenge] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(header):
        at = _next(header, at)
        if challenges_read and (match := _PARAMETER.match(header, at)):
            quoted = match[2]
            value = match[3] if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(match[1].lower(), value)
        elif match := _SCHEME.match(header, at):
            parameters = {}
            challenges_read.append(HttpChallenge(match[1].lower(), parameters))
        else:
            break
        at = match.end()
    return challenges_read


def _next(header: str, at: int) -> int:
    blank = _NEXT.match(header, at)
    return at if blank is None else blank.end()


def answer(challenges: Iterable[HttpChallenge], user: str, password: str, target: str) -> str:
    """Answer the best challenge.

    Args:
        challenges: the challenges of a service.
        user: the name of the user.
        password: the user's password.
        target: the target of the GET request, as in the request line.

    Returns:
        The `Authorization` header.

    Raises:
        ChallengeError: none of them can be answered.
    """
    offered = list(challenges)
    digests = [offer for offer in offered if offer.scheme == "digest" and _can_answer(offer)]
    if digests:
        best = max(digests, key=lambda offer: list(_HASHES).index(_algorithm(offer)))
        return _digest(best, user, password, target)
    if any(offer.scheme == "basic" for offer in offered):
        return _basic(user, password)
    schemes = ", ".join(offer.scheme for offer in offered) or "nothing that can be read"
    raise ChallengeError(f"it asks for {schemes}, and Basic and Digest are what there is")


def _basic(user: str, password: str) -> str:
    if ":" in user:
        raise ChallengeError("it asks for Basic, in which a user name cannot have a colon")
    shown = f"{user}:{password}".encode("utf-8", "surrogatepass")
    return f"Basic {base64.b64encode(shown).decode()}"


def _md5(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.md5(data, usedforsecurity=False).hexdigest()  # required by the service


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_HASHES: Final[Mapping[str, HashFunction]] = {"md5": _md5, "sha-256": _sha256}
"""By the name of the algorithm, the strongest last."""

_SESSION: Final = "-sess"


def _algorithm(challenge: HttpChallenge) -> str:
    return challenge.parameters.get("algorithm", "MD5").lower().removesuffix(_SESSION)


def _qualities(challenge: HttpChallenge) -> list[str]:
    words = challenge.parameters.get("qop", "").lower().split(",")
    return [quality.strip() for quality in words if quality.strip()]


def _can_answer(challenge: HttpChallenge) -> bool:
    qualities = _qualities(challenge)
    is_complete = {"realm", "nonce"} <= challenge.parameters.keys()
    is_known = _algorithm(challenge) in _HASHES
    return is_complete and is_known and (not qualities or "auth" in qualities)


def _digest(challenge: HttpChallenge, user: str, password: str, target: str) -> str:
    parameters = challenge.parameters
    digest = _HASHES[_algorithm(challenge)]
    realm, nonce, own_nonce = parameters["realm"], parameters["nonce"], secrets.token_hex(16)
    secret = digest(f"{user}:{realm}:{password}")
    if parameters.get("algorithm", "").lower().endswith(_SESSION):
        secret = digest(f"{secret}:{nonce}:{own_nonce}")
    request_hash = digest(f"GET:{target}")
    fields = _name(parameters, digest, user, realm)
    fields += [f"realm={_quoted(realm)}", f"nonce={_quoted(nonce)}", f"uri={_quoted(target)}"]
    if _qualities(challenge):
        proof = digest(f"{secret}:{nonce}:00000001:{own_nonce}:auth:{request_hash}")
        fields += ["qop=auth", "nc=00000001", f'cnonce="{own_nonce}"']
    else:  # as before RFC 2617
        proof = digest(f"{secret}:{nonce}:{request_hash}")
    fields.append(f'response="{proof}"')
    if "algorithm" in parameters:
        fields.append(f"algorithm={parameters['algorithm']}")
    if "opaque" in parameters:
        fields.append(f"opaque={_quoted(parameters['opaque'])}")
    return f"Digest {', '.join(fields)}"


def _name(parameters: Mapping[str, str], digest: HashFunction, user: str, realm: str) -> list[str]:
    """Return the fields for the user: the name hashed or in the clear, encoded for a header."""
    if parameters.get("userhash", "").lower() == "true":
        return [f'username="{digest(f"{user}:{realm}")}"', "userhash=true"]
    if not user.isascii() and parameters.get("charset", "").lower() == "utf-8":
        return [f"username*=UTF-8''{quote(user, safe='')}"]
    return [f"username={_quoted(user)}"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
