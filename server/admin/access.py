"""Who may see what: authentication over HTTP, sessions in cookies, and entitlement.

The modules are those of transports, and are asked on the engine's thread. Without a module, neither
here nor for the whole instance, everybody may see everything. Whoever has shown credentials gets a
cookie that stands for them. What is asked of entitlement is to read a resource of the type `admin`:
the path without a suffix, as documents name it.

Source: AMPS User Guide, Configuring Monitoring; Entitlement Resource and Permission Types.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.regex import matches
from server.admin.http.messages import Refusal, Request
from server.security.authentication import Credentials, make_authenticator
from server.security.entitlement import Permission, make_entitlement
from server.security.switches import SwitchedAuthenticator, SwitchedEntitlement

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.engine_side import EngineSide
    from server.base.log import Log
    from server.security.authentication import Admission
    from server.security.switches import Switches

COOKIE: Final = "amps_session"

_MOST_SESSIONS: Final = 1_000
"""Of more, the one goes that has not been used for longest."""

_MAX_AGE: Final = re.compile(r"(?:^|;)\s*max-age\s*=\s*(\d+)\s*(?:;|$)", re.IGNORECASE)
_DEFAULT_AGE: Final = 86_400


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sends a request.

    Attributes:
        user: the authenticated user, empty if nobody vouches for one.
        is_exempt: whether the path is one of AnonymousPaths, so that nothing is asked.
        cookie: the session that stands for the credentials that were shown; empty for none.
    """

    user: str = ""
    is_exempt: bool = False
    cookie: str = ""


@dataclass(slots=True)
class _Session:
    user: str
    shown: bytes
    ends: float


class Sessions:
    """Cookies, and whom they stand for.

    Args:
        seconds: how long one is good for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._shown: dict[bytes, str] = {}

    def begin(self, user: str, credentials: str) -> str:
        """Give the cookie that stands for credentials; the same as long as it is good."""
        shown = _digest(credentials)
        known = self._shown.get(shown)
        if known is not None and self.user_of(known) == user:
            return known
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = _Session(user, shown, time.monotonic() + self._seconds)
        self._shown[shown] = token
        while len(self._sessions) > _MOST_SESSIONS:
            self._forget(next(iter(self._sessions)))
        return token

    def user_of(self, token: str) -> str | None:
        """The user whom a cookie stands for; None if it is not good."""
        key = _digest(token)
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
        self._sessions.clear()
        self._shown.clear()

    def _forget(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        self._shown.pop(session.shown, None)


class Access:
    """Decides who is there, and what they may see.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        switches: whether authentication and entitlement are on.
        engine_side: where modules are asked.
        log: told of those who are refused.

    Attributes:
        sessions: the cookies.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        admin: AdminSpec,
        switches: Switches,
        engine_side: EngineSide,
        log: Log,
    ) -> None:
        authentication = admin.authentication or spec.authentication
        entitlement = admin.entitlement or spec.entitlement
        self._authenticator = (
            None
            if authentication is None
            else SwitchedAuthenticator(make_authenticator(authentication), switches)
        )
        self._entitlement = (
            None
            if entitlement is None
            else SwitchedEntitlement(make_entitlement(entitlement), switches)
        )
        self._admin = admin
        self._engine_side = engine_side
        self._log = log
        age = _MAX_AGE.search(admin.session_options)
        self.sessions = Sessions(int(age[1]) if age else _DEFAULT_AGE)

    async def admit(self, request: Request) -> Visitor:
        """Find out who sends a request.

        Raises:
            Refusal: nobody whom the authentication module admits; the answer says how to log on.
        """
        pattern = self._admin.anonymous_paths
        if pattern is not None and matches(pattern, "/" + "/".join(request.segments)):
            return Visitor(is_exempt=True)
        if self._authenticator is None:
            return Visitor()
        shown = request.headers.get("authorization", "")
        if not shown:
            user = self._known(request)
            if user is not None:
                return Visitor(user)
        admission = await self._authenticate(shown)
        if not admission.granted:
            self._refuse(request, admission)
        if not shown:
            return Visitor(admission.user)
        return Visitor(admission.user, cookie=self.sessions.begin(admission.user, shown))

    def cookie_of(self, visitor: Visitor, request: Request) -> list[tuple[str, str]]:
        """The headers that hand a visitor the cookie, if there is one that is new to them."""
        if not visitor.cookie or visitor.cookie in _cookies(request):
            return []
        options = self._admin.session_options
        given = {part.partition("=")[0].strip().lower() for part in options.split(";")}
        extra = [] if "samesite" in given else ["SameSite=Strict"]
        if request.is_encrypted and "secure" not in given:
            extra.append("Secure")
        return [("Set-Cookie", "; ".join([f"{COOKIE}={visitor.cookie}", options, *extra]))]

    async def require(self, visitor: Visitor, path: str) -> None:
        """Let a visitor pass who may read a resource.

        Raises:
            Refusal: they may not.
        """
        if await self.hidden(visitor, [path]):
            who = f"User {visitor.user!r}" if visitor.user else "Who has not logged on"
            raise Refusal(403, f"{who} may not see {path}: entitlement does not allow it.")

    async def hidden(self, visitor: Visitor, paths: Iterable[str]) -> frozenset[str]:
        """Those of some resources that a visitor may not read."""
        entitlement = self._entitlement
        if entitlement is None or visitor.is_exempt:
            return frozenset()
        asked = tuple(paths)
        return await self._engine_side.ask(
            lambda: frozenset(
                path
                for path in asked
                if not entitlement.allows(visitor.user, Permission.READ_ADMIN, path)
            )
        )

    def _known(self, request: Request) -> str | None:
        """The user whom one of the request's cookies stands for."""
        users = map(self.sessions.user_of, _cookies(request))
        return next((user for user in users if user is not None), None)

    async def _authenticate(self, shown: str) -> Admission:
        module = self._authenticator
        assert module is not None  # noqa: S101 - else nobody is asked
        credentials = _read(shown, self._admin.www_authenticate)
        return await self._engine_side.ask(lambda: module.authenticate(credentials))

    def _refuse(self, request: Request, admission: Admission) -> None:
        if "authorization" in request.headers:
            self._log.emit("19-0008", address=request.peer, reason=admission.reason)
        challenge = ("WWW-Authenticate", self._admin.www_authenticate)
        raise Refusal(401, "Log on to see this.", (challenge,))


def _read(shown: str, challenge: str) -> Credentials:
    """What an Authorization header shows, of the scheme that is asked for.

    The token of Negotiate and NTLM stands where others have their password. A request without
    credentials shows an empty name.
    """
    scheme, _, value = shown.partition(" ")
    wanted = challenge.partition(" ")[0].lower()
    if scheme.lower() != wanted:
        return Credentials("", "", explicit=True)
    if wanted != "basic":
        return Credentials("", value.strip(), explicit=True)
    try:
        decoded = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return Credentials("", "", explicit=True)
    user, _, password = decoded.partition(":")
    return Credentials(user, password, explicit=True)


def _cookies(request: Request) -> list[str]:
    """The sessions that a request names."""
    parts = (part.strip() for part in request.headers.get("cookie", "").split(";"))
    return [part.removeprefix(f"{COOKIE}=") for part in parts if part.startswith(f"{COOKIE}=")]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()
