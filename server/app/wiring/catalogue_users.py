"""Catalogue of libamperage_users.so, which AMPS does not have, with its option."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from config_schema.catalogue import LibraryRule, ModuleKind, ModuleRule, OptionRule, ValueKind
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
            users_module.LIBRARY, "allows what a file of users says", (_FILE_NAME,)
        ),
    },
    (replace(_FILE_NAME, required=False),),
)
