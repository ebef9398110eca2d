"""Finds the security modules in use, and checks their files of users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from config_schema.problems import Location
from server.app.wiring.catalogue import ProgramCatalogue
from server.security.users import modules as users_module
from server.security.users.users import read_users_file

if TYPE_CHECKING:
    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec, ModuleUse

_HINT: Final = "a start would fail, if this is the machine that it is for"


def security_uses(spec: InstanceSpec) -> Iterator[ModuleUse]:
    """Yield the authentication and entitlement modules that a configuration uses."""
    for transport in spec.transports:
        yield from filter(None, (transport.authentication, transport.entitlement))
    if spec.admin is not None:
        yield from filter(None, (spec.admin.authentication, spec.admin.entitlement))
    yield from filter(None, (spec.authentication, spec.entitlement))


def check_users_files(spec: InstanceSpec, problems: Problems) -> None:
    """Report errors in files of users, so that a check reports them before a start does."""
    functions = (
        ProgramCatalogue().with_functions(spec.user_defined_functions, spec.modules).functions
    )
    checked: set[str] = set()
    for path, location in _users_files(spec):
        if path in checked:
            continue
        checked.add(path)
        if os.path.isfile(path):
            read_users_file(path, functions, problems)
        else:
            problems.warning(
                location, f"Options/{users_module.FILE_NAME}", f"there is no file {path}", _HINT
            )


def _users_files(spec: InstanceSpec) -> Iterator[tuple[str, Location]]:
    """Yield the files of users, each with the location where it is named."""
    loaded = {
        module.name: module
        for module in spec.modules
        if module.library_name == users_module.LIBRARY
    }
    for use in security_uses(spec):
        module = loaded.get(use.module)
        if module is not None:
            options = (*use.options, *module.options)
            option = next(
                candidate for candidate in options if candidate.name == users_module.FILE_NAME
            )
            yield option.value, option.location
