"""Catalogue of the authentication and entitlement libraries, with their options.

Source: AMPS User Guide, Securing AMPS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from config_schema.catalogue import (
    LibraryRule,
    ModuleKind,
    ModuleRule,
    OptionProblem,
    OptionRule,
    ValueKind,
)
from config_schema.spec import Options
from server.app.wiring.catalogue_authenticators import EXEC, MULTI
from server.app.wiring.catalogue_directories import MULTI_AUTHENTICATION
from server.app.wiring.catalogue_http import HTTP_ENTITLEMENT
from server.app.wiring.catalogue_oauth import OAUTH
from server.security import simple_access
from server.security.users import modules as users_module

_FILE_NAME: Final = OptionRule(
    users_module.FILE_NAME, ValueKind.TEXT, "file of the users, made by amps-users", required=True
)

USERS: Final = LibraryRule(
    users_module.LIBRARY,
    {
        ModuleKind.AUTHENTICATION: ModuleRule(
            users_module.LIBRARY, "takes the passwords of a file of users", (_FILE_NAME,)
        ),
        ModuleKind.ENTITLEMENT: ModuleRule(
            users_module.LIBRARY, "takes permissions from a file of users", (_FILE_NAME,)
        ),
    },
    (replace(_FILE_NAME, required=False),),
)
"""libamperage_users.so, which AMPS does not have."""

_TOPICS: Final = ("AllowedTopics", "DeniedTopics")


def _without_topics(options: Options, inherited: Options) -> Iterator[OptionProblem]:
    """Warn if neither option is given: AMPS requires one of the two."""
    if not any(source.get(name) for source in (options, inherited) for name in _TOPICS):
        yield OptionProblem(
            _TOPICS[0],
            f"is missing, and so is {_TOPICS[1]}: everything is allowed to everyone",
            "AMPS requires one of the two",
            is_warning=True,
        )


_SIMPLE_ACCESS: Final = LibraryRule(
    simple_access.LIBRARY,
    {
        ModuleKind.ENTITLEMENT: ModuleRule(
            simple_access.LIBRARY,
            "allows and denies topics and paths by their names, to all users alike",
            (
                OptionRule(
                    "AllowedTopics",
                    ValueKind.REGEX,
                    "matches the names of what may be used",
                    default=".*",
                ),
                OptionRule(
                    "DeniedTopics",
                    ValueKind.REGEX,
                    "matches the names of what may not be used all the same",
                ),
                OptionRule(
                    "GrantedPermissions",
                    ValueKind.CHOICE,
                    "what is granted; both if left out",
                    choices=("read", "write"),
                ),
            ),
            check=_without_topics,
        )
    },
    open_options=True,  # where it is loaded, AMPS needs no options and silently ignores any
)

SECURITY_LIBRARIES: Final[dict[str, LibraryRule]] = {
    rule.name: rule
    for rule in (
        _SIMPLE_ACCESS,
        HTTP_ENTITLEMENT,
        USERS,
        OAUTH,
        MULTI_AUTHENTICATION,
        EXEC,
        MULTI,
    )
}
