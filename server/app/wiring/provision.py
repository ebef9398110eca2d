"""Makes the message types and functions that an instance needs before it can start.

The compiler has already checked everything that needs no access outside the configuration; this
module opens files and loads modules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from config_schema.problems import HasLocation, Problems
from config_schema.spec import InstanceSpec, MessageTypeSpec
from server.expressions import Functions, built_in
from server.expressions.functions.lookups import (
    EXPERIMENTAL_MODULE,
    LookupFunction,
    declared_lookups,
    null_lookup,
    value_lookup,
)
from server.expressions.functions.registry import Function
from server.expressions.functions.times import LEGACY_MODULE, legacy
from server.expressions.functions.user_defined import UserFunctionError, load_function
from server.message_types.base import MessageType, MessageTypeError
from server.message_types.registry import BUILT_IN, DECLARED, MessageTypes
from server.util.plugin_loader import LibraryError, load_library

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

_COMPLIANCE_OPTION: Final = "AMPSVersionCompliance"
_UNIFIED_SINCE: Final = 5


class ProvisionError(Exception):
    """A part of the instance cannot be made. The text has its location in the configuration."""

    def __init__(self, where: HasLocation, problem: str) -> None:
        super().__init__(f"{where.location}: {problem}")


def provision_message_types(spec: InstanceSpec) -> Mapping[str, MessageType]:
    """Make the message types that clients of an instance may use, and return them by name.

    Raises:
        ProvisionError: a type cannot be made, for instance since a file is missing.
    """
    types = MessageTypes({module.name: module.library for module in spec.modules})
    for configured in spec.message_types:
        try:
            types.define(configured.name, configured.module, _options(configured))
        except MessageTypeError as error:
            raise ProvisionError(configured, f"message type {configured.name}: {error}") from None
    names = [*DECLARED, *(configured.name for configured in spec.message_types)]
    return {name: types.get(name) for name in names}


def message_type_modules(spec: InstanceSpec) -> Mapping[str, str]:
    """Return the module of each message type that clients of an instance may use, by type name."""
    configured = {message_type.name: message_type.module for message_type in spec.message_types}
    return {name: name for name in DECLARED} | configured


def with_unified_fix_tags(spec: InstanceSpec) -> frozenset[str]:
    """Return the names of the message types whose events use the tags shared by all event topics.

    Source: AMPS User Guide, SOW Statistics Events.
    """
    return frozenset(
        message_type.name
        for message_type in spec.message_types
        if message_type.version_compliance >= _UNIFIED_SINCE
    )


def provision_functions(
    spec: InstanceSpec,
    log: ServerLog,
    find: LookupFunction = null_lookup,
    clock: Callable[[], float] = time.time,
) -> Functions:
    """Make the functions that expressions of an instance may call.

    Args:
        spec: the instance.
        log: gets an entry when a user-defined function fails, the first time for each function.
        find: finds the records that VALUE_LOOKUP looks up.
        clock: returns the present time for functions of time, in seconds since 1970.

    Raises:
        ProvisionError: a library cannot be loaded, or lacks a function that is configured for it.
    """
    functions = built_in(clock, spec.name, spec.group)
    if any(module.library_name == LEGACY_MODULE for module in spec.modules):
        functions = functions.with_functions(legacy(clock))
    if any(module.library_name == EXPERIMENTAL_MODULE for module in spec.modules):
        functions = functions.with_functions([value_lookup(declared_lookups(spec.modules), find)])
    return functions.with_functions(_user_defined(spec, log))


def _user_defined(spec: InstanceSpec, log: ServerLog) -> Iterator[Function]:
    modules = {module.name: module for module in spec.modules}
    reported: set[str] = set()

    def report(name: str, reason: str) -> None:
        if name not in reported:
            reported.add(name)
            log.emit("1A-0001", function=name, reason=reason)

    for function in spec.user_defined_functions:
        try:
            library = load_library(modules[function.module].library)
            yield load_function(
                function.name, library, function.symbol, function.parameter_count, report
            )
        except (LibraryError, UserFunctionError) as error:
            raise ProvisionError(function, f"function {function.name}: {error}") from None


def check_provisions(spec: InstanceSpec, problems: Problems) -> None:
    """Report message types that cannot be made, so that a check reports them before a start does.

    It reads files, but runs no code that the configuration names: custom message types, and
    composites of these, are left for the start.
    """
    types = MessageTypes()
    left_out: set[str] = set()
    for configured in spec.message_types:
        parts = configured.options.all("MessageType")
        if configured.module not in BUILT_IN or not left_out.isdisjoint(parts):
            left_out.add(configured.name)
            continue
        try:
            types.define(configured.name, configured.module, _options(configured))
        except MessageTypeError as error:
            where, element = _option_location(configured, error.option)
            problems.error(where, element, error.message)


def _option_location(configured: MessageTypeSpec, option: str | None) -> tuple[HasLocation, str]:
    """Return the location of a message type's option, and the element's name for messages."""
    for setting in configured.options:
        if setting.name == option:
            return setting, f"MessageType/{option}"
    return configured, "MessageTypes/MessageType" if option is None else f"MessageType/{option}"


def _options(configured: MessageTypeSpec) -> Mapping[str, Sequence[str]]:
    names = dict.fromkeys(option.name for option in configured.options)
    return {name: configured.options.all(name) for name in names if name != _COMPLIANCE_OPTION}
