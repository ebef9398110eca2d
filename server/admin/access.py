"""Authentication over HTTP, sessions in cookies, and entitlement.

The modules are those of transports, and run on the engine's thread. Without a module, for the admin
interface or for the whole instance, every requester may see everything. A requester that has
presented credentials gets a cookie that stands for them. Entitlement is checked for reading a
resource of the type `admin`: the path without a suffix, as documents name it.

Source: AMPS User Guide, Configuring Monitoring; Entitlement Resource and Permission Types.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from config_schema.regex import matches
from server.admin.audit_events import TRANSPORT, AdminAudit
from server.admin.credential_cache import CredentialCache
from server.admin.http.messages import HttpError, HttpHeaders, HttpRequest
from server.security.authentication import Admission, LogonCredentials, LogonOrigin, proof_headers
from server.security.cookies import COOKIE, DEFAULT_SECONDS, CookieSessions, cookies_in
from server.security.deferred import mapped
from server.security.permissions import UNKNOWN_USER_PERMIT, Permission
from server.util.rate_limited_log import RateLimitedLog, RunningLoopTimer, host_of

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec
    from server.admin.engine_calls import EngineCalls
    from server.admin.permissions import AdminPermissionCache
    from server.security.authentication import LogonAuthenticator
    from server.security.permissions import Permissions
    from server.util.log_protocol import ServerLog

_SCRIPT: Final = "x-requested-with"
"""The header of requests by page scripts, for which no user can be prompted for a password."""

_UNREADABLE: Final = "its Authorization header has no credentials of the kind that is asked for"

_MAX_AGE: Final = re.compile(r"(?:^|;)\s*max-age\s*=\s*(\d+)\s*(?:;|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Requester:
    """The sender of a request.

    Attributes:
        user: the authenticated user, empty if none is authenticated.
        address: of the sender.
        is_exempt: whether the path is one of AnonymousPaths, so that no credentials are required.
        cookie: the session that stands for the presented credentials; empty for none.
        challenge: the challenge for a requester that has presented only a cookie; empty for
            others.
        auth_headers: headers that prove the server's identity to the requester.
    """

    user: str = ""
    address: str = ""
    is_exempt: bool = False
    cookie: str = ""
    challenge: str = ""
    auth_headers: HttpHeaders = ()


class AccessControl:
    """Authenticates requesters, and checks their entitlement.

    Args:
        admin: the description of the admin interface.
        authenticator: authenticates requesters; None if there is no authentication.
        permissions: the requesters' permissions; None for everything.
        engine_calls: runs both on the engine's thread.
        audit: records logons and refusals.
        log: where refusals are logged.
        sessions: the cookies.

    Attributes:
        sessions: the cookies.
        has_entitlement: whether there is a module that may refuse a resource.
    """

    def __init__(
        self,
        admin: AdminSpec,
        authenticator: LogonAuthenticator | None,
        permissions: AdminPermissionCache | None,
        engine_calls: EngineCalls,
        audit: AdminAudit,
        log: ServerLog,
        sessions: CookieSessions,
    ) -> None:
        self._authenticator = authenticator
        self._permissions = permissions
        self.has_entitlement: Final = permissions is not None
        self._admin = admin
        self._engine_calls = engine_calls
        self._audit = audit
        self._rate_limited_log = RateLimitedLog(log, RunningLoopTimer())
        self._credential_cache = CredentialCache()
        age = _MAX_AGE.search(admin.session_options)
        sessions.lifetime_s = int(age[1]) if age else DEFAULT_SECONDS
        self.sessions = sessions

    async def authenticate(self, request: HttpRequest) -> Requester:
        """Authenticate the sender of a request.

        Raises:
            HttpError: the authentication module does not admit it; the answer says how to log on.
        """
        pattern = self._admin.anonymous_paths
        if pattern is not None and matches(pattern, "/" + "/".join(request.segments)):
            return Requester(address=request.peer, is_exempt=True)
        return await self.log_on(request)

    async def log_on(self, request: HttpRequest) -> Requester:
        """Authenticate the sender of a request, also for a path of AnonymousPaths.

        Raises:
            HttpError: see `authenticate`.
        """
        module = self._authenticator
        if module is None:
            return Requester(address=request.peer)
        authorization = request.headers.get("authorization", "")
        if not authorization:
            user = self._cookie_user(request)
            if user is not None:
                return Requester(user, request.peer, challenge=self._challenge_for(request))
        security_epoch = self._security_epoch
        user = self._credential_cache.find(authorization, request.peer, security_epoch)
        if user is not None and not await self._lacks_permissions(user):
            return Requester(
                user, request.peer, cookie=self.sessions.begin_session(user, authorization)
            )
        credentials = self._read_credentials(authorization, request)
        admission = await self._check_credentials(module, credentials)
        if not admission.granted:
            self._refuse_logon(request, credentials, admission)
        if _is_password(authorization):
            self._credential_cache.add(authorization, request.peer, security_epoch, admission.user)
        if not authorization:
            return Requester(admission.user, request.peer)
        if not self.sessions.has_session(admission.user, authorization):
            self._audit.record_logon(admission.user, request.peer, admission.reason)
        return Requester(
            admission.user,
            request.peer,
            cookie=self.sessions.begin_session(admission.user, authorization),
            auth_headers=proof_headers(self._admin.www_authenticate, admission),
        )

    def session_cookie_headers(
        self, requester: Requester, request: HttpRequest
    ) -> list[tuple[str, str]]:
        """Return the headers that set a requester's cookie, if it is new to them."""
        if not requester.cookie or requester.cookie in cookies_in(
            request.headers.get("cookie", "")
        ):
            return []
        session_options = self._admin.session_options
        attribute_names = {
            part.partition("=")[0].strip().lower() for part in session_options.split(";")
        }
        extra = [] if "samesite" in attribute_names else ["SameSite=Strict"]
        if request.is_encrypted and "secure" not in attribute_names:
            extra.append("Secure")
        return [
            ("Set-Cookie", "; ".join([f"{COOKIE}={requester.cookie}", session_options, *extra]))
        ]

    async def require_access(self, requester: Requester, path: str) -> None:
        """Check that a requester may read a resource.

        A module may learn a user's permissions from credentials only, and lose them while the user
        is away. Then a requester that has presented a cookie is challenged for credentials.

        Raises:
            HttpError: the requester may not read it.
        """
        refused = {} if requester.is_exempt else await self._refusing_rules(requester.user, [path])
        if refused:
            self._audit.record_refusal(requester.user, requester.address, path, refused[path])
            if requester.challenge and await self._lacks_permissions(requester.user):
                raise _unauthorized(requester.challenge)
            subject = (
                f"User {requester.user!r}" if requester.user else "A user who has not logged on"
            )
            raise HttpError(403, f"{subject} may not see {path}: entitlement does not allow it.")

    async def require_topic(self, requester: Requester, topic: str) -> None:
        """Check that a requester may read all messages of a topic, with all their fields.

        Raises:
            HttpError: the requester may not.
        """
        permissions = self._permissions
        if permissions is None:
            return
        permit = await self._engine_calls.await_decision(
            lambda: mapped(
                permissions.find(requester.user),
                lambda found: found.get_permit(Permission.READ_TOPIC, topic),
            )
        )
        if not permit.is_allowed or permit.is_limited:
            subject = f"User {requester.user!r}" if requester.user else "A user without a logon"
            part = "all of topic" if permit.is_allowed else "from topic"
            self._audit.record_refusal(requester.user, requester.address, topic, permit.rule)
            raise HttpError(
                403, f"{subject} may not read {part} {topic}: entitlement does not allow it."
            )

    async def hidden_paths(self, requester: Requester, paths: Iterable[str]) -> frozenset[str]:
        """Return the resources that a requester may not read."""
        if requester.is_exempt:
            return frozenset()
        return frozenset(await self._refusing_rules(requester.user, paths))

    async def refused_paths(self, requester: Requester, paths: Iterable[str]) -> frozenset[str]:
        """Return the resources that a requester may not read in other requests.

        This request may have come by a path of AnonymousPaths itself: then no user is known.
        """
        pattern = self._admin.anonymous_paths
        checked = (path for path in paths if pattern is None or not matches(pattern, path))
        return frozenset(await self._refusing_rules(requester.user, checked))

    async def _refusing_rules(self, user: str, paths: Iterable[str]) -> Mapping[str, str]:
        """Return the paths that may not be read, each with the rule that refuses it."""
        permissions = self._permissions
        if permissions is None:
            return {}
        checked = tuple(paths)
        return await self._engine_calls.await_decision(
            lambda: mapped(permissions.find(user), partial(_refused_rules, checked))
        )

    @property
    def _security_epoch(self) -> tuple[int, int]:
        """A value that changes whenever logons or permissions have to be decided again."""
        permissions = self._permissions
        return self.sessions.end_count, 0 if permissions is None else permissions.invalidation_count

    async def _lacks_permissions(self, user: str) -> bool:
        """Return whether a module has yet to learn a user's permissions from a logon."""
        permissions = self._permissions
        if permissions is None:
            return False
        return await self._engine_calls.await_decision(
            lambda: mapped(
                permissions.find(user),
                lambda user_permissions: (
                    user_permissions.get_permit(Permission.READ_ADMIN, "") is UNKNOWN_USER_PERMIT
                ),
            )
        )

    def _cookie_user(self, request: HttpRequest) -> str | None:
        """Return the user of one of the request's cookies."""
        users = map(self.sessions.user_of, cookies_in(request.headers.get("cookie", "")))
        return next((user for user in users if user is not None), None)

    def _read_credentials(
        self, authorization: str, request: HttpRequest
    ) -> LogonCredentials | None:
        """Return the credentials of a request; None if they cannot be read."""
        credentials = _read(authorization, self._admin.www_authenticate)
        if credentials is None:
            return None
        certificate_user = request.certificate_user
        origin = LogonOrigin(TRANSPORT, request.peer, certificate_user=certificate_user)
        return replace(credentials, origin=origin)

    async def _check_credentials(
        self, module: LogonAuthenticator, credentials: LogonCredentials | None
    ) -> Admission:
        if credentials is None:
            return Admission(False, "", _UNREADABLE)
        return await self._engine_calls.await_decision(
            lambda: module.begin_logon().authenticate(credentials)
        )

    def _refuse_logon(
        self, request: HttpRequest, credentials: LogonCredentials | None, admission: Admission
    ) -> None:
        if "authorization" in request.headers:
            self._rate_limited_log.emit(
                "19-0008", host_of(request.peer), address=request.peer, reason=admission.reason
            )
            user = "" if credentials is None else credentials.user
            self._audit.record_logon_refusal(
                user, request.peer, admission.detail or admission.reason
            )
        raise _unauthorized(self._challenge_for(request))

    def _challenge_for(self, request: HttpRequest) -> str:
        """Return the challenge that asks the sender of a request for credentials."""
        challenge = self._admin.www_authenticate
        if _SCRIPT in request.headers and challenge.lower().startswith("basic"):
            return f"x{challenge}"  # a scheme that browsers do not ask for a password for
        return challenge


def _unauthorized(challenge: str) -> HttpError:
    return HttpError(401, "Log on to see this.", (("WWW-Authenticate", challenge),))


def _is_password(authorization: str) -> bool:
    """Return whether the credentials are a password, and not a token that is valid once."""
    return authorization.partition(" ")[0].lower() == "basic"


def _refused_rules(paths: Iterable[str], permissions: Permissions) -> Mapping[str, str]:
    """Return the paths that may not be read, each with the rule that refuses it."""
    permits = ((path, permissions.get_permit(Permission.READ_ADMIN, path)) for path in paths)
    return {path: permit.rule for path, permit in permits if not permit.is_allowed}


def _read(authorization: str, challenge: str) -> LogonCredentials | None:
    """Parse an Authorization header of the requested scheme.

    The token of Negotiate stands where others have their password. A request without
    credentials has an empty name.

    Returns:
        The credentials; None for another scheme, or if they cannot be read.
    """
    if not authorization:
        return LogonCredentials("", "", explicit=True)
    scheme, _, value = authorization.partition(" ")
    expected_scheme = challenge.partition(" ")[0].lower()
    if scheme.lower() != expected_scheme or not value.strip():
        return None
    if expected_scheme != "basic":
        return LogonCredentials("", value.strip(), explicit=True)
    try:
        decoded = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    user, colon, password = decoded.partition(":")
    return LogonCredentials(user, password, explicit=True) if colon else None
