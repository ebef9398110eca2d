"""What a web service says, as an authentication module and an entitlement module.

Source: AMPS User Guide, RESTful Authentication and Entitlements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.base.complaints import Complaints, on_running_loop
from server.security.authentication import Admission, Credentials
from server.security.http_entitlement.reading import Documents
from server.security.http_entitlement.service import Outcome, Service
from server.security.http_entitlement.settings import (
    entitlement_seconds,
    is_entitlement_only,
    read_settings,
    store_name,
)
from server.security.http_entitlement.store import CredentialStore, FoundUsers
from server.security.later import mapped
from server.security.permissions import NOTHING, STRANGER, Permit, Same

if TYPE_CHECKING:
    from config_schema.spec import Options
    from server.base.log import Log
    from server.expressions.functions.registry import Functions
    from server.security.authentication import Exchange
    from server.security.desk import Desk
    from server.security.entitlement import Entitlement
    from server.security.http_entitlement.settings import Settings
    from server.security.http_entitlement.store import Reset
    from server.security.later import Later
    from server.security.permissions import Permissions

_STRANGER: Final = Same(STRANGER)

_REFUSED: Final = "the credentials are not accepted"
_UNDECIDED: Final = "the credentials cannot be checked at the moment"
_NAMELESS: Final = "a user name is required"


@dataclass(slots=True)
class WebServices:
    """What the uses of the module in an instance have in common.

    Attributes:
        services: by how they are asked.
        stores: what is known of users, by name.
        found: what is known of users whom others authenticate, by name.
        documents: reads what services say; None as long as there is no service.
        complaints: writes entries that anybody can cause; None likewise.
    """

    services: dict[Settings, Service] = field(default_factory=dict)
    stores: dict[str, CredentialStore] = field(default_factory=dict)
    found: dict[str, FoundUsers] = field(default_factory=dict)
    documents: Documents | None = None
    complaints: Complaints | None = None

    def service(self, settings: Settings, functions: Functions, desk: Desk, log: Log) -> Service:
        """The service that is asked in a way.

        Raises:
            WebError: a file that https needs cannot be used.
        """
        known = self.services.get(settings)
        if known is None:
            if settings.endpoint.scheme == "https":
                settings.tls.context()
            if self.documents is None:
                self.documents = Documents(functions)
            complaints = self.complaints_in(log)
            known = self.services[settings] = Service(settings, self.documents, desk, complaints)
        return known

    def complaints_in(self, log: Log) -> Complaints:
        """Writes entries that anybody can cause who logs on."""
        if self.complaints is None:
            self.complaints = Complaints(log, on_running_loop)
        return self.complaints

    def store(self, name: str) -> CredentialStore:
        """The store with a name."""
        return self.stores.setdefault(name, CredentialStore())

    def found_in(self, name: str) -> FoundUsers:
        """The store with a name, of users whom others authenticate."""
        return self.found.setdefault(name, FoundUsers())


@dataclass(frozen=True, slots=True)
class WebAuthenticator:
    """Has a service decide on logons.

    Attributes:
        service: the service.
        store: takes what it says.
        valid: seconds for which that is valid; None for as long as a user has connections.
        accepts_nameless: whether the service is asked about logons without a user name.
        log: told of permissions that have changed.
    """

    service: Service
    store: CredentialStore
    valid: float | None
    accepts_nameless: bool
    log: Log

    def begin(self) -> Exchange:
        """See `Authenticator`."""
        return self

    def forget(self) -> None:
        """See `Authenticator`."""
        self.service.forget()

    def step(self, credentials: Credentials) -> Later[Admission]:
        """See `Exchange`."""
        if not credentials.user and not self.accepts_nameless:
            return Admission(False, "", _NAMELESS)
        asked = self.service.ask(credentials, shows_them=True)
        return mapped(asked, lambda outcome: self._admit(credentials.user, outcome))

    def _admit(self, shown: str, outcome: Outcome) -> Admission:
        document = outcome.document
        if document is None:
            if outcome.problem:
                return Admission(False, "", _UNDECIDED, detail=outcome.problem, undecided=True)
            return Admission(False, "", _REFUSED, detail=outcome.refusal)
        user = document.user_name or shown
        if not user:
            return Admission(False, "", _NAMELESS, detail="the document names no user either")
        if self.store.admit(user, document, self.valid):
            self.log.emit("25-0032", user=user)
        return Admission(True, user, "")


@dataclass(frozen=True, slots=True)
class WebEntitlement:
    """Knows what users may do whom the same service has authenticated.

    Attributes:
        store: has it.
        name: what that is called.
        complaints: told of users whom it has not.
    """

    store: CredentialStore
    name: str
    complaints: Complaints

    def enter(self, user: str) -> Later[Permissions]:
        """See `Entitlement`."""
        entered = self.store.enter(user)
        if entered is None:
            self.complaints.emit("25-0033", user, user=user, store=self.name)
            return _STRANGER
        return entered

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        self.store.forget(user)


@dataclass(frozen=True, slots=True)
class UnauthenticatedEntitlement:
    """Asks a service about users whom somebody else has authenticated.

    Attributes:
        service: the service.
        found: takes what it says.
        accepts_nameless: whether it is asked about users without a name.
    """

    service: Service
    found: FoundUsers
    accepts_nameless: bool

    def enter(self, user: str) -> Later[Permissions]:
        """See `Entitlement`."""
        if not user and not self.accepts_nameless:
            return NOTHING
        known = self.found.get(user)
        if known is not None:
            return known
        asked_at = self.found.times_forgotten
        asked = self.service.ask(Credentials(user, "", explicit=True), shows_them=False)
        return mapped(asked, lambda outcome: self._take(user, outcome, asked_at))

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        self.service.forget()
        self.found.forget(user)

    def _take(self, user: str, outcome: Outcome, asked_at: int) -> Permissions:
        if outcome.document is None:
            return Same(Permit(False, rule=outcome.refusal or outcome.problem))
        self.found.keep(user, outcome.document, asked_at)
        return outcome.document


def make_web_authenticator(
    options: Options, services: WebServices, functions: Functions, desk: Desk, log: Log
) -> WebAuthenticator:
    """Make the authentication module.

    Args:
        options: its options.
        services: what it has in common with other uses.
        functions: what filters may call.
        desk: where the service is asked.
        log: told what happens.

    Raises:
        WebError: a file that https needs cannot be used.
    """
    settings = read_settings(options)
    return WebAuthenticator(
        services.service(settings, functions, desk, log),
        services.store(store_name(options)),
        entitlement_seconds(options),
        options.flag("ServerAcceptsEmptyAuthId", default=False),
        log,
    )


def make_web_entitlement(
    options: Options,
    services: WebServices,
    functions: Functions,
    desk: Desk,
    log: Log,
    reset: Reset,
) -> Entitlement:
    """Make the entitlement module.

    Args:
        options: its options.
        services: what it has in common with other uses.
        functions: what filters may call.
        desk: where the service is asked, if nobody authenticates with it.
        log: told what happens.
        reset: ends the connections of a user where the module is used.

    Raises:
        WebError: a file that https needs cannot be used.
    """
    name = store_name(options)
    if is_entitlement_only(options):
        service = services.service(read_settings(options), functions, desk, log)
        accepts_nameless = options.flag("ServerAcceptsEmptyAuthId", default=False)
        return UnauthenticatedEntitlement(service, services.found_in(name), accepts_nameless)
    store = services.store(name)
    store.resets.append(reset)
    return WebEntitlement(store, name.partition("?")[0], services.complaints_in(log))
