"""The registry of authentication and entitlement modules, and their factories.

The options of a loaded module (`Modules`) are the defaults of all its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from config_schema.spec import ModuleSpec, ModuleUse, Options
from server.security import simple_access
from server.security.authentication import (
    AcceptAllAuthenticator,
    LogonAuthenticator,
    RefuseAllAuthenticator,
)
from server.security.custom.authentication import load_authentication
from server.security.custom.entitlement import load_entitlement
from server.security.custom.library import CustomModuleError
from server.security.entitlement import Entitlement, FixedEntitlement
from server.security.failed_logons import ThrottledAuthenticator
from server.security.http_client import HttpClientError
from server.security.http_entitlement.modules import (
    HttpEntitlementServices,
    make_web_authenticator,
    make_web_entitlement,
)
from server.security.http_entitlement.settings import LIBRARY as HTTP_LIBRARY
from server.security.multi import module as multi
from server.security.multi.options import OptionsError
from server.security.oauth import module as oauth
from server.security.permissions import ALL_PERMISSIONS, NO_PERMISSIONS
from server.security.users import modules as users_module
from server.security.users.files import UsersFileError
from server.util.plugin_loader import LibraryError

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions
    from server.security.async_worker import AsyncWorker
    from server.security.failed_logons import FailedLogons
    from server.security.users.files import UsersFile, UsersFiles
    from server.util.log_protocol import ServerLog


class SecurityError(ValueError):
    """A module cannot be made as configured. The text names it, its location and the reason."""


@dataclass(frozen=True, slots=True)
class SecurityModuleServices:
    """The dependencies of modules.

    Attributes:
        modules: the modules that the configuration loads.
        functions: the functions of filters.
        log: receives their log entries.
        worker: runs their slow decisions.
        failed_logons: counts failed logons.
        users_files: the open users files.
        transport: the transport that they are made for.
        web_services: the state that modules with web services share.
        reset: disconnects a user from the transport, and makes all modules forget the user's
            permissions.
    """

    modules: Iterable[ModuleSpec]
    functions: Functions
    log: ServerLog
    worker: AsyncWorker
    failed_logons: FailedLogons
    users_files: UsersFiles
    transport: str
    web_services: HttpEntitlementServices
    reset: Callable[[str], None]


AuthenticationFactory: TypeAlias = Callable[[Options, SecurityModuleServices], LogonAuthenticator]
EntitlementFactory: TypeAlias = Callable[[Options, SecurityModuleServices], Entitlement]
NamedAuthenticationFactory: TypeAlias = Callable[
    [str, Options, SecurityModuleServices], LogonAuthenticator
]
"""A factory of a loaded module, which has a name of its own."""


def _accept(options: Options, _services: SecurityModuleServices) -> LogonAuthenticator:
    return AcceptAllAuthenticator(
        require_logon=options.flag("RequireLogon", default=True),
        require_user_name=options.flag("RequireUsername", default=False),
        trust_user_name=options.flag("AllowSpoofing", default=False),
        trust_certificate=options.flag("UserFromCertificate", default=False),
    )


def _accept_implicitly(options: Options, _services: SecurityModuleServices) -> LogonAuthenticator:
    return AcceptAllAuthenticator(
        require_logon=False,
        require_user_name=False,
        trust_user_name=options.flag("AllowSpoofing", default=False),
        trust_certificate=options.flag("UserFromCertificate", default=False),
    )


def _users_file(options: Options, services: SecurityModuleServices) -> UsersFile:
    try:
        return services.users_files.open(
            options.get(users_module.FILE_NAME) or "",
            services.functions,
            services.worker,
            services.log,
        )
    except UsersFileError as error:
        raise SecurityError(str(error)) from error


def _authenticate_users(options: Options, services: SecurityModuleServices) -> LogonAuthenticator:
    file = _users_file(options, services)
    file.authenticated_transports.add(services.transport)
    return users_module.UsersAuthenticator(file, services.log)


def _entitle_users(options: Options, services: SecurityModuleServices) -> Entitlement:
    file = _users_file(options, services)
    file.entitled_transports.add(services.transport)
    return users_module.UsersEntitlement(file)


OPEN: Final = AcceptAllAuthenticator(
    require_logon=True, require_user_name=False, trust_user_name=False
)
"""Decides on logons where no module is configured."""

DEFAULT: Final = "amps-default-authentication-module"
"""The name of the default authentication module."""

AUTHENTICATION_MODULES: Final[Mapping[str, AuthenticationFactory]] = {
    DEFAULT: _accept,
    "amps-implicit-authentication-module": _accept_implicitly,
    "amps-default-no-authentication-module": lambda _options, _services: RefuseAllAuthenticator(),
}
"""The modules that need no Modules entry, by the name in a configuration."""


def _web_service_authenticator(
    _name: str, options: Options, services: SecurityModuleServices
) -> LogonAuthenticator:
    return make_web_authenticator(
        options, services.web_services, services.functions, services.worker, services.log
    )


def _web_service_entitlement(options: Options, services: SecurityModuleServices) -> Entitlement:
    return make_web_entitlement(
        options,
        services.web_services,
        services.functions,
        services.worker,
        services.log,
        services.reset,
    )


AUTHENTICATION_LIBRARIES: Final[Mapping[str, NamedAuthenticationFactory]] = {
    HTTP_LIBRARY: _web_service_authenticator,
    multi.LIBRARY: lambda name, options, about: multi.make(name, options, about.worker, about.log),
    oauth.LIBRARY: lambda _name, options, about: oauth.make_oauth(options, about.worker, about.log),
    users_module.LIBRARY: lambda _name, options, about: _authenticate_users(options, about),
}
"""The modules that a configuration loads, by the base name of their library."""

ENTITLEMENT_MODULES: Final[Mapping[str, EntitlementFactory]] = {
    "amps-default-entitlement-module": lambda _options, _about: FixedEntitlement(ALL_PERMISSIONS),
    "amps-default-no-entitlement-module": lambda _options, _about: FixedEntitlement(NO_PERMISSIONS),
}
"""The modules that need no Modules entry, by the name in a configuration."""

ENTITLEMENT_LIBRARIES: Final[Mapping[str, EntitlementFactory]] = {
    simple_access.LIBRARY: lambda options, _about: simple_access.simple_access(options),
    HTTP_LIBRARY: _web_service_entitlement,
    users_module.LIBRARY: _entitle_users,
}
"""The modules that a configuration loads, by the base name of their library."""

_WITHOUT_OPTIONS_OF_LOADING: Final = frozenset({multi.LIBRARY})
"""Libraries that ignore the options of their Modules entry, as in AMPS."""

_ONLY_WHERE_LOADED: Final = frozenset({"ReuseConnections"})
"""Options that a use cannot override."""


def make_authenticator(
    use: ModuleUse | None, services: SecurityModuleServices
) -> LogonAuthenticator:
    """Make the authentication module of a configuration; without one, the default module.

    Loaded modules receive passwords, so failed logons are throttled there.

    Raises:
        SecurityError: its options cannot be used.
    """
    if use is None:
        return OPEN
    factory = AUTHENTICATION_MODULES.get(use.module)
    if factory is not None:
        return factory(use.options, services)
    module = _load_authenticator(use, services)
    return ThrottledAuthenticator(module, services.failed_logons, services.log)


def _load_authenticator(use: ModuleUse, services: SecurityModuleServices) -> LogonAuthenticator:
    module = _loaded(use, services)
    options = _options(module, use)
    library_factory = AUTHENTICATION_LIBRARIES.get(module.library_name)
    try:
        if library_factory is not None:
            return library_factory(module.name, options, services)
        return load_authentication(module, options, services.worker, services.log)
    except (
        CustomModuleError,
        LibraryError,
        HttpClientError,
        oauth.OAuthError,
        OptionsError,
    ) as error:
        raise SecurityError(f"{use.location}: {error}") from error


def make_entitlement(use: ModuleUse | None, services: SecurityModuleServices) -> Entitlement:
    """Make the entitlement module of a configuration; without one, the default module.

    Raises:
        SecurityError: its options cannot be used.
    """
    if use is None:
        return FixedEntitlement(ALL_PERMISSIONS)
    factory = ENTITLEMENT_MODULES.get(use.module)
    if factory is not None:
        return factory(use.options, services)
    module = _loaded(use, services)
    options = _options(module, use)
    library = ENTITLEMENT_LIBRARIES.get(module.library_name)
    try:
        if library is not None:
            return library(options, services)
        return load_entitlement(module, options, services.functions, services.worker, services.log)
    except (CustomModuleError, LibraryError, HttpClientError) as error:
        raise SecurityError(f"{use.location}: {error}") from error


def _loaded(use: ModuleUse, services: SecurityModuleServices) -> ModuleSpec:
    return next(module for module in services.modules if module.name == use.module)


def _options(module: ModuleSpec, use: ModuleUse) -> Options:
    """Return the options of a use, with the defaults of the loaded module."""
    if module.library_name in _WITHOUT_OPTIONS_OF_LOADING:
        return use.options
    options = [option for option in use.options if option.name not in _ONLY_WHERE_LOADED]
    use_names = {option.name for option in options}
    return Options(
        (*options, *(option for option in module.options if option.name not in use_names))
    )
