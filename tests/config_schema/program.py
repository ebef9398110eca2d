"""A program to compile configurations for: everything built in, and two features not built yet."""

from collections.abc import Mapping
from datetime import UTC
from typing import Literal

from actions.catalogue import ACTION_MODULES
from actions.schedule import ScheduleError, parse_crontab, parse_every
from config_schema.catalogue import (
    ExpressionKind,
    LibraryRule,
    ModuleKind,
    ModuleRule,
    OptionRule,
    ValueKind,
)
from server.expressions import check
from server.expressions.kinds import Kind

SECURITY: Mapping[ModuleKind, Mapping[str, ModuleRule]] = {
    ModuleKind.AUTHENTICATION: {
        "amps-default-authentication-module": ModuleRule(
            "amps-default-authentication-module",
            "accepts any user who logs on",
            tuple(
                OptionRule(name, ValueKind.BOOLEAN, "")
                for name in ("AllowSpoofing", "RequireLogon", "RequireUsername")
            ),
        )
    },
    ModuleKind.ENTITLEMENT: {
        "amps-default-entitlement-module": ModuleRule(
            "amps-default-entitlement-module", "allows everything"
        )
    },
}

CHAINING = ModuleRule(
    "libamps_id_chaining_key_generator.so",
    "one SOW key for a chain of messages",
    (
        OptionRule("Key", ValueKind.PATH, "", repeatable=True),
        OptionRule("Primary", ValueKind.PATH, ""),
        OptionRule("Secondary", ValueKind.PATH, "", repeatable=True),
        OptionRule("FileName", ValueKind.TEXT, ""),
        OptionRule("Validation", ValueKind.BOOLEAN, ""),
    ),
)


class Program:
    """A catalogue over the tables above and the real expressions and schedules."""

    libraries: Mapping[str, LibraryRule] = {
        CHAINING.name: LibraryRule(CHAINING.name, {ModuleKind.KEY_GENERATOR: CHAINING})
    }
    unbuilt: Mapping[str, str] = {
        "Transports/Transport/TransportFilter": "transport filters",
        "Actions/Action/Do/Module=amps-action-do-minidump": "minidumps",
    }

    def modules(self, kind: ModuleKind) -> Mapping[str, ModuleRule]:
        return {**ACTION_MODULES, **SECURITY}.get(kind, {})

    def check_expression(self, text: str, kind: ExpressionKind) -> str | None:
        return check(text, Kind(kind.value))

    def check_schedule(self, text: str, form: Literal["Every", "Crontab"]) -> str | None:
        parse = parse_every if form == "Every" else parse_crontab
        try:
            parse(text, UTC)
        except ScheduleError as error:
            return str(error)
        return None
