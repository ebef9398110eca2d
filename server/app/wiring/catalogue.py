"""The modules, libraries and functions that a configuration can use, for the compiler's checks.

The parts of the server that execute them have tables of their own; this module only combines these.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final, Literal

from actions.catalogue import ACTION_MODULES, PIPELINE_LIBRARY
from actions.local_zone import local_zone
from actions.schedule import ScheduleError, parse_crontab, parse_every
from config_schema.catalogue import (
    ExpressionKind,
    LibraryRule,
    MinimumOptions,
    ModuleKind,
    ModuleRule,
    OptionRule,
    ValueKind,
)
from config_schema.spec import FunctionSpec, ModuleSpec
from server.app.wiring.catalogue_security import SECURITY_LIBRARIES
from server.app.wiring.library_contents import names_defined
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import check_options
from server.expressions import check
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.lookups import (
    EXPERIMENTAL_MODULE,
    LOOKUP_OPTION,
    declared_lookups,
    null_lookup,
    value_lookup,
)
from server.expressions.functions.registry import Function, Functions
from server.expressions.functions.times import LEGACY_MODULE, legacy
from server.expressions.functions.user_defined import UserFunctionError, load_function
from server.message_types import custom as message_types
from server.security.custom import authentication as authentication
from server.security.custom import entitlement as entitlement
from server.security.interceptors import custom as filters
from server.security.modules import AUTHENTICATION_MODULES, ENTITLEMENT_MODULES
from server.storage.sow.keys import generators
from server.util.plugin_loader import LibraryError

_OPTION_HELP: Final = {
    "AllowSpoofing": "take the user name that the client gives for its own",
    "RequireLogon": "refuse commands before a logon",
    "RequireUsername": "refuse a logon without a user name",
    "UserFromCertificate": "use the name in the client's certificate as the user",
}


def _flag(name: str, default: str) -> OptionRule:
    return OptionRule(name, ValueKind.BOOLEAN, _OPTION_HELP[name], default=default)


_MODULES: Final[Mapping[ModuleKind, Mapping[str, ModuleRule]]] = {
    **ACTION_MODULES,
    ModuleKind.AUTHENTICATION: {
        rule.name: rule
        for rule in (
            ModuleRule(
                "amps-default-authentication-module",
                "accepts any user who logs on",
                (
                    _flag("AllowSpoofing", "false"),
                    _flag("RequireLogon", "true"),
                    _flag("RequireUsername", "false"),
                    _flag("UserFromCertificate", "false"),
                ),
            ),
            ModuleRule(
                "amps-implicit-authentication-module",
                "accepts any user, and commands without a logon",
                (_flag("AllowSpoofing", "false"), _flag("UserFromCertificate", "false")),
            ),
            ModuleRule("amps-default-no-authentication-module", "accepts no user"),
        )
        if rule.name in AUTHENTICATION_MODULES
    },
    ModuleKind.ENTITLEMENT: {
        name: ModuleRule(name, "gives every user the same answer") for name in ENTITLEMENT_MODULES
    },
}

_LIBRARIES: Final[Mapping[str, LibraryRule]] = SECURITY_LIBRARIES | {
    rule.name: rule
    for rule in (
        LibraryRule(
            "libamps_id_chaining_key_generator.so",
            {
                ModuleKind.KEY_GENERATOR: ModuleRule(
                    "libamps_id_chaining_key_generator.so",
                    "gives all messages of a chain of ids the key of the first",
                    (
                        OptionRule(
                            "Key",
                            ValueKind.PATH,
                            "field of an id; the first is the primary field if there is no Primary",
                            repeatable=True,
                        ),
                        OptionRule("Primary", ValueKind.PATH, "field of a message's own id"),
                        OptionRule(
                            "Secondary",
                            ValueKind.PATH,
                            "field of the id of an earlier message of the chain",
                            repeatable=True,
                        ),
                        OptionRule("FileName", ValueKind.TEXT, "file that keeps the chains"),
                        OptionRule(
                            "Validation",
                            ValueKind.BOOLEAN,
                            "refuse messages that would join two chains",
                            default="false",
                        ),
                    ),
                    at_least=(MinimumOptions(2, ("Primary", "Key", "Secondary")),),
                )
            },
        ),
        LibraryRule(
            "libamps_transport_filter_correlation_id_timestamper.so",
            {
                ModuleKind.TRANSPORT_FILTER: ModuleRule(
                    "libamps_transport_filter_correlation_id_timestamper.so",
                    "writes the time of arrival into the correlation id of publishes",
                    (
                        OptionRule(
                            "Override",
                            ValueKind.BOOLEAN,
                            "replace a correlation id that the publisher has set",
                            default="false",
                        ),
                    ),
                )
            },
        ),
        LibraryRule(
            EXPERIMENTAL_MODULE,
            {},  # its function can be called once it is loaded
            (
                OptionRule(
                    LOOKUP_OPTION,
                    ValueKind.LOOKUP,
                    "name;parameter count;message type;topic;return field;lookup field;...",
                    repeatable=True,
                ),
            ),
        ),
        LibraryRule(
            PIPELINE_LIBRARY,
            {},  # loading it is enough to use its action
        ),
        LibraryRule(
            LEGACY_MODULE,
            {},  # loading it is enough to call its functions
        ),
    )
}


_PYTHON_USES: Final[Mapping[ModuleKind, str]] = {
    ModuleKind.FUNCTIONS: "",
    ModuleKind.MESSAGE_TYPE: message_types.ENTRY_POINT,
    ModuleKind.TRANSPORT_FILTER: filters.ENTRY_POINT,
    ModuleKind.KEY_GENERATOR: generators.ENTRY_POINT,
    ModuleKind.AUTHENTICATION: authentication.ENTRY_POINT,
    ModuleKind.ENTITLEMENT: entitlement.ENTRY_POINT,
}
"""The possible uses of a Python library, with the function that it must have for each."""


class ProgramCatalogue:
    """The tables above, with the interface that the compiler uses.

    Args:
        functions: the functions that expressions may call.
    """

    def __init__(self, functions: Functions = BUILTINS) -> None:
        self._functions = functions

    @property
    def functions(self) -> Functions:
        """The functions that expressions may call."""
        return self._functions

    @property
    def libraries(self) -> Mapping[str, LibraryRule]:
        """The loadable libraries available here, by base name."""
        return _LIBRARIES

    def modules(self, kind: ModuleKind) -> Mapping[str, ModuleRule]:
        """Return the modules that need no loading, by name."""
        return _MODULES.get(kind, {})

    def check_expression(self, text: str, kind: ExpressionKind) -> str | None:
        """Return None if `text` is a valid expression of this kind, else the error."""
        return check(text, kind, self._functions)

    def check_function_name(self, name: str) -> str | None:
        """Return None if expressions can call a function by this name, else the error."""
        try:
            _declared(name, None)
        except UserFunctionError as error:
            return str(error)
        return None

    def with_functions(
        self, functions: Sequence[FunctionSpec], modules: Sequence[ModuleSpec]
    ) -> ProgramCatalogue:
        """Return a catalogue whose expressions may call more functions."""
        registry = self._functions
        if any(module.library_name == LEGACY_MODULE for module in modules):
            registry = registry.with_functions(legacy(time.time))
        if any(module.library_name == EXPERIMENTAL_MODULE for module in modules):
            registry = registry.with_functions(
                [value_lookup(declared_lookups(modules), null_lookup)]
            )
        good = [spec for spec in functions if self.check_function_name(spec.name) is None]
        return ProgramCatalogue(
            registry.with_functions(_declared(spec.name, spec.parameter_count) for spec in good)
        )

    def examine_library(self, library: str) -> LibraryRule | str:
        """Return the rule of a Python library, or why there is none."""
        try:
            symbols = names_defined(library)
        except LibraryError as error:
            return str(error)
        rule = ModuleRule(library, "written in Python", open_options=True)
        return LibraryRule(
            library,
            dict.fromkeys(_PYTHON_USES, rule),
            open_options=True,
            entry_points={kind: entry for kind, entry in _PYTHON_USES.items() if entry},
            symbols=symbols,
        )

    def check_schedule(self, text: str, form: Literal["Every", "Crontab"]) -> str | None:
        """Return None if `text` is a schedule of this form, else the error."""
        parse = parse_every if form == "Every" else parse_crontab
        try:
            parse(text, local_zone())
        except ScheduleError as error:
            return str(error)
        return None

    def check_command_options(self, text: str, command: Literal["subscribe", "sow"]) -> str | None:
        """Return None if a command can have these options, else the error."""
        try:
            check_options(text, command)
        except CommandRefusedError as refusal:
            return refusal.detail
        return None


def _declared(name: str, parameter_count: int | None) -> Function:
    """Return a function as expressions use it before its library is loaded.

    Raises:
        UserFunctionError: the name is not allowed.
    """
    placeholder = ModuleType("declared")
    placeholder.function = lambda *_: None  # type: ignore[attr-defined]  # stands for its code
    return load_function(name, placeholder, "function", parameter_count, lambda *_: None)
