"""The authentication module and the entitlement module of a web service.

Source: AMPS User Guide, RESTful Authentication and Entitlements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.security.authentication import Admission, AuthenticatorWithoutScram, LogonCredentials
from server.security.deferred import mapped
from server.security.http_entitlement.permission_store import HttpPermissionCache, PermissionStore
from server.security.http_entitlement.response_parser import DocumentParser
from server.security.http_entitlement.service import PermissionResponse, PermissionService
from server.security.http_entitlement.settings import (
    entitlement_seconds,
    is_entitlement_only,
    read_settings,
    store_name,
)
from server.security.permissions import (
    NO_PERMISSIONS,
    UNKNOWN_USER_PERMIT,
    ConstantPermissions,
    Permit,
)
from server.util.rate_limited_log import RateLimitedLog, RunningLoopTimer

if TYPE_CHECKING:
    from config_schema.spec import Options
    from server.expressions.functions.registry import Functions
    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.security.entitlement import Entitlement
    from server.security.http_entitlement.permission_store import UserReset
    from server.security.http_entitlement.settings import HttpEntitlementSettings
    from server.security.permissions import Permissions
    from server.util.log_protocol import ServerLog

_UNKNOWN_USER: Final = ConstantPermissions(UNKNOWN_USER_PERMIT)

_REFUSED: Final = "the credentials are not accepted"
_UNDECIDED: Final = "the credentials cannot be checked at the moment"
_NAMELESS: Final = "a user name is required"


@dataclass(slots=True)
class HttpEntitlementServices:
    """The state that all uses of the module in an instance share.

    Attributes:
        services: the services, by their settings.
        stores: the permissions of users, by name.
        caches: the permissions of users that another module authenticates, by name.
        documents: parses documents; None as long as there is no service.
        rate_limited_log: the rate-limited log for entries that any client can cause; None likewise.
    """

    services: dict[HttpEntitlementSettings, PermissionService] = field(default_factory=dict)
    stores: dict[str, PermissionStore] = field(default_factory=dict)
    caches: dict[str, HttpPermissionCache] = field(default_factory=dict)
    documents: DocumentParser | None = None
    rate_limited_log: RateLimitedLog | None = None

    def service_for(
        self,
        settings: HttpEntitlementSettings,
        functions: Functions,
        worker: AsyncWorker,
        log: ServerLog,
    ) -> PermissionService:
        """Return the service with some settings; make it on first use.

        Raises:
            HttpClientError: a file that https needs cannot be used.
        """
        service = self.services.get(settings)
        if service is None:
            if settings.endpoint.scheme == "https":
                settings.tls.context()
            if self.documents is None:
                self.documents = DocumentParser(functions)
            rate_limited_log = self.rate_limited_log_for(log)
            service = self.services[settings] = PermissionService(
                settings, self.documents, worker, rate_limited_log
            )
        return service

    def rate_limited_log_for(self, log: ServerLog) -> RateLimitedLog:
        """Return the rate-limited log for entries that any client can cause by logging on."""
        if self.rate_limited_log is None:
            self.rate_limited_log = RateLimitedLog(log, RunningLoopTimer())
        return self.rate_limited_log

    def store_for(self, name: str) -> PermissionStore:
        """Return the store of a name."""
        return self.stores.setdefault(name, PermissionStore())

    def cache_for(self, name: str) -> HttpPermissionCache:
        """Return the store of a name, for users that another module authenticates."""
        return self.caches.setdefault(name, HttpPermissionCache())


@dataclass(frozen=True, slots=True)
class HttpAuthenticator(AuthenticatorWithoutScram):
    """Authenticates by a web service.

    Attributes:
        service: the service.
        store: receives the documents.
        validity_s: seconds for which a document is valid; None for as long as a user has
            connections.
        accepts_nameless: whether requests are sent for logons without a user name.
        log: records changes of permissions.
    """

    service: PermissionService
    store: PermissionStore
    validity_s: float | None
    accepts_nameless: bool
    log: ServerLog

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return self

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.service.forget()

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        if not credentials.user and not self.accepts_nameless:
            return Admission(False, "", _NAMELESS)
        future = self.service.request_permissions(credentials, sends_proof=True)
        return mapped(future, lambda response: self._admit(credentials.user, response))

    def _admit(self, shown: str, response: PermissionResponse) -> Admission:
        document = response.document
        if document is None:
            if response.problem:
                return Admission(False, "", _UNDECIDED, detail=response.problem, undecided=True)
            return Admission(False, "", _REFUSED, detail=response.refusal)
        user = document.user_name or shown
        if not user:
            return Admission(False, "", _NAMELESS, detail="the document names no user either")
        if self.store.store_document(user, document, self.validity_s):
            self.log.emit("25-0032", user=user)
        return Admission(True, user, "")


@dataclass(frozen=True, slots=True)
class HttpEntitlement:
    """Returns the permissions of users that the same service has authenticated.

    Attributes:
        store: has the documents.
        name: its name.
        rate_limited_log: records users that the store does not have.
    """

    store: PermissionStore
    name: str
    rate_limited_log: RateLimitedLog

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:
        """See `Entitlement`."""
        entered = self.store.acquire_permissions(user)
        if entered is None:
            self.rate_limited_log.emit("25-0033", user, user=user, store=self.name)
            return _UNKNOWN_USER
        return entered

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        self.store.forget(user)


@dataclass(frozen=True, slots=True)
class HttpUserEntitlement:
    """Requests from a service the permissions of users that another module has authenticated.

    Attributes:
        service: the service.
        cache: caches the documents.
        accepts_nameless: whether requests are sent for users without a name.
    """

    service: PermissionService
    cache: HttpPermissionCache
    accepts_nameless: bool

    def acquire_permissions(self, user: str) -> AnswerOrFuture[Permissions]:
        """See `Entitlement`."""
        if not user and not self.accepts_nameless:
            return NO_PERMISSIONS
        cached = self.cache.get(user)
        if cached is not None:
            return cached
        requested_at = self.cache.invalidation_count
        future = self.service.request_permissions(
            LogonCredentials(user, "", explicit=True), sends_proof=False
        )
        return mapped(future, lambda response: self._on_response(user, response, requested_at))

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        self.service.forget()
        self.cache.forget(user)

    def _on_response(
        self, user: str, response: PermissionResponse, requested_at: int
    ) -> Permissions:
        if response.document is None:
            return ConstantPermissions(Permit(False, rule=response.refusal or response.problem))
        self.cache.store(user, response.document, requested_at)
        return response.document


def make_web_authenticator(
    options: Options,
    services: HttpEntitlementServices,
    functions: Functions,
    worker: AsyncWorker,
    log: ServerLog,
) -> HttpAuthenticator:
    """Make the authentication module.

    Args:
        options: its options.
        services: the state shared with other uses.
        functions: the functions that filters may call.
        worker: runs the requests.
        log: records events.

    Raises:
        HttpClientError: a file that https needs cannot be used.
    """
    settings = read_settings(options)
    return HttpAuthenticator(
        services.service_for(settings, functions, worker, log),
        services.store_for(store_name(options)),
        entitlement_seconds(options),
        options.flag("ServerAcceptsEmptyAuthId", default=False),
        log,
    )


def make_web_entitlement(
    options: Options,
    services: HttpEntitlementServices,
    functions: Functions,
    worker: AsyncWorker,
    log: ServerLog,
    reset: UserReset,
) -> Entitlement:
    """Make the entitlement module.

    Args:
        options: its options.
        services: the state shared with other uses.
        functions: the functions that filters may call.
        worker: runs the requests, if another module authenticates.
        log: records events.
        reset: ends the connections of a user where the module is used.

    Raises:
        HttpClientError: a file that https needs cannot be used.
    """
    name = store_name(options)
    if is_entitlement_only(options):
        service = services.service_for(read_settings(options), functions, worker, log)
        accepts_nameless = options.flag("ServerAcceptsEmptyAuthId", default=False)
        return HttpUserEntitlement(service, services.cache_for(name), accepts_nameless)
    store = services.store_for(name)
    store.reset_callbacks.append(reset)
    return HttpEntitlement(store, name.partition("?")[0], services.rate_limited_log_for(log))
