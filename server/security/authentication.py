"""Authentication modules: whether a connection may log on, and as whom.

Source: AMPS User Guide, Provided Authentication Modules and Configuring Authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from config_schema.spec import ModuleUse


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows. `explicit` is False when it sent a command without logging on first."""

    user: str
    password: str
    explicit: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of an authentication module.

    Attributes:
        granted: whether the connection may log on.
        user: the authenticated user name, empty where the module does not vouch for one.
        reason: said to the client, and written to the log.
    """

    granted: bool
    user: str
    reason: str


class Authenticator(Protocol):
    """One authentication module, configured for an instance or a transport."""

    def authenticate(self, credentials: Credentials) -> Admission:
        """Decide on a logon."""


@dataclass(frozen=True, slots=True)
class AcceptAll:
    """Accepts whoever comes, with the few conditions that its options make."""

    require_logon: bool
    require_user_name: bool
    trust_user_name: bool

    def authenticate(self, credentials: Credentials) -> Admission:
        """Decide on a logon."""
        if self.require_logon and not credentials.explicit:
            return Admission(False, "", "a logon is required before any other command")
        if self.require_user_name and not credentials.user:
            return Admission(False, "", "a user name is required")
        user = credentials.user if self.trust_user_name else ""
        return Admission(True, user, "authentication disabled")


@dataclass(frozen=True, slots=True)
class RefuseAll:
    """Refuses whoever comes."""

    def authenticate(self, credentials: Credentials) -> Admission:
        """Decide on a logon."""
        return Admission(False, "", f"no user may log on, {credentials.user!r} included")


def _default(use: ModuleUse) -> Authenticator:
    return AcceptAll(
        require_logon=use.options.flag("RequireLogon", default=True),
        require_user_name=use.options.flag("RequireUsername", default=False),
        trust_user_name=use.options.flag("AllowSpoofing", default=False),
    )


def _implicit(use: ModuleUse) -> Authenticator:
    return AcceptAll(
        require_logon=False,
        require_user_name=False,
        trust_user_name=use.options.flag("AllowSpoofing", default=False),
    )


def _refuse(_use: ModuleUse) -> Authenticator:
    return RefuseAll()


AUTHENTICATION_MODULES: Final[Mapping[str, Callable[[ModuleUse], Authenticator]]] = {
    "amps-default-authentication-module": _default,
    "amps-implicit-authentication-module": _implicit,
    "amps-default-no-authentication-module": _refuse,
}
"""The modules that need no Modules entry, by the name that a configuration uses."""


def make_authenticator(use: ModuleUse | None) -> Authenticator:
    """Make the authenticator that a configuration asks for; without one, the default module."""
    if use is None:
        return AcceptAll(require_logon=True, require_user_name=False, trust_user_name=False)
    return AUTHENTICATION_MODULES[use.module](use)
