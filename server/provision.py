"""Makes what an instance needs before it can start: message types and functions.

What can be checked without touching anything outside the configuration has been checked by then;
this is where files are opened and modules are loaded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from config_schema.problems import Located
from config_schema.spec import InstanceSpec, MessageTypeSpec
from server.expressions import Functions, built_in
from server.expressions.functions.times import LEGACY_MODULE, legacy
from server.message_types.base import MessageType, MessageTypeError
from server.message_types.registry import DECLARED, MessageTypes

_COMPLIANCE_OPTION: Final = "AMPSVersionCompliance"


class ProvisionError(Exception):
    """A part of the instance cannot be made. The text has the place in the configuration."""

    def __init__(self, where: Located, problem: str) -> None:
        super().__init__(f"{where.location}: {problem}")


def provision_message_types(spec: InstanceSpec) -> Mapping[str, MessageType]:
    """Make the message types that clients of an instance may speak, by name.

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
    """The module of each message type that clients of an instance may speak, by the type's name."""
    configured = {message_type.name: message_type.module for message_type in spec.message_types}
    return {name: name for name in DECLARED} | configured


def provision_functions(spec: InstanceSpec) -> Functions:
    """Make the functions that expressions of an instance may call."""
    functions = built_in(time.time, spec.name, spec.group)
    if any(module.library.endswith(LEGACY_MODULE) for module in spec.modules):
        functions = functions.adding(legacy(time.time))
    return functions


def _options(configured: MessageTypeSpec) -> Mapping[str, Sequence[str]]:
    names = dict.fromkeys(option.name for option in configured.options)
    return {name: configured.options.all(name) for name in names if name != _COMPLIANCE_OPTION}
