"""Finds the security modules in use and their files of users, and checks these."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from config_schema.problems import Location
from config_schema.spec import TopicSpec
from server.admin.audit_events import TRANSPORT as ADMIN
from server.app.wiring.catalogue import ProgramCatalogue
from server.security.users import modules as users_module
from server.security.users.users import read_users_file

if TYPE_CHECKING:
    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec, ModuleUse
    from server.security.users.files import FileUses

_HINT: Final = "a start would fail, if this is the machine that it is for"


def security_uses(spec: InstanceSpec) -> Iterator[ModuleUse]:
    """Yield the authentication and entitlement modules that a configuration uses."""
    for transport in spec.transports:
        yield from filter(None, (transport.authentication, transport.entitlement))
    if spec.admin is not None:
        yield from filter(None, (spec.admin.authentication, spec.admin.entitlement))
    yield from filter(None, (spec.authentication, spec.entitlement))


def other_modules(spec: InstanceSpec) -> Iterator[str]:
    """Yield the names of modules that a configuration uses for anything but security."""
    for transport in spec.transports:
        yield from (use.module for use in transport.filters)
    for topic in spec.sow:
        if isinstance(topic, TopicSpec) and topic.key_generator is not None:
            yield topic.key_generator.module
    for destination in spec.replication:
        for outgoing in destination.transports:
            if outgoing.authenticator is not None:
                yield outgoing.authenticator.module
    for action in spec.actions:
        yield from (use.module for use in action.triggers)
        yield from (step.use.module for step in action.steps)
    yield from (message_type.module for message_type in spec.message_types)
    yield from (function.module for function in spec.user_defined_functions)


def users_file_uses(spec: InstanceSpec) -> FileUses:
    """Return the transports that use each file of users; the admin interface is one of them."""
    interfaces = [(one.name, one.authentication, one.entitlement) for one in spec.transports]
    if spec.admin is not None:
        interfaces.append((ADMIN, spec.admin.authentication, spec.admin.entitlement))
    uses: dict[str, tuple[set[str], set[str]]] = {}
    for name, *own in interfaces:
        for kind, use in enumerate(zip(own, (spec.authentication, spec.entitlement), strict=True)):
            for path, _location in _users_files(spec, filter(None, [use[0] or use[1]])):
                uses.setdefault(path, (set(), set()))[kind].add(name)
    return uses


def check_users_files(spec: InstanceSpec, problems: Problems) -> None:
    """Report errors in files of users, so that a check reports them before a start does."""
    functions = (
        ProgramCatalogue().with_functions(spec.user_defined_functions, spec.modules).functions
    )
    checked: set[str] = set()
    for path, location in _users_files(spec, security_uses(spec)):
        if path in checked:
            continue
        checked.add(path)
        if os.path.isfile(path):
            read_users_file(path, functions, problems)
        else:
            problems.warning(
                location, f"Options/{users_module.FILE_NAME}", f"there is no file {path}", _HINT
            )


def _users_files(spec: InstanceSpec, uses: Iterable[ModuleUse]) -> Iterator[tuple[str, Location]]:
    """Yield the files of users of modules, each with the location where it is named."""
    loaded = {
        module.name: module
        for module in spec.modules
        if module.library_name == users_module.LIBRARY
    }
    for use in uses:
        module = loaded.get(use.module)
        if module is not None:
            options = (*use.options, *module.options)
            option = next(
                candidate for candidate in options if candidate.name == users_module.FILE_NAME
            )
            yield option.value, option.location
