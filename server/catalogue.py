"""What this program offers to a configuration, for the compiler to check against.

Everything that runs the same language below this point reads it from its own tables; this module
only brings them together, and keeps the list of what is read but not acted on yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

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
from server.expressions import Kind, check
from server.message_types.registry import BUILT_IN
from server.security.authentication import AUTHENTICATION_MODULES
from server.security.entitlement import ENTITLEMENT_MODULES

UNBUILT: Final[Mapping[str, str]] = {
    "Admin": "the admin interface",
    "Transports/Transport/Type=amps-replication": "replication",
    "Transports/Transport/Type=amps-replication-secure": "replication",
    "Transports/Transport/Protocol=fix": "the legacy fix protocol",
    "Transports/Transport/Protocol=nvfix": "the legacy nvfix protocol",
    "Transports/Transport/Protocol=xml": "the legacy xml protocol",
    "Transports/Transport/Protocol=soap": "the legacy soap protocol",
    "Transports/Transport/Protocol=fix-session": "the legacy fix-session protocol",
    "Protocols/Protocol/Module=fix": "the legacy fix protocol",
    "Protocols/Protocol/Module=nvfix": "the legacy nvfix protocol",
    "Protocols/Protocol/Module=xml": "the legacy xml protocol",
    "Protocols/Protocol/Module=soap": "the legacy soap protocol",
    "Protocols/Protocol/Module=fix-session": "the legacy fix-session protocol",
    "Protocols/Protocol/TrustedAdmin": "connections trusted by the admin interface",
    "SOW/Topic": "the State of the World",
    "SOW/View": "views",
    "SOW/ConflatedTopic": "conflated topics",
    "SOW/Queue": "queues",
    "SOW/LocalQueue": "queues",
    "SOW/GroupLocalQueue": "queues",
    "TransactionLog": "the transaction log",
    "Replication": "replication",
    "Actions": "actions",
    "MessageDiskLimit": "offlining of slow clients to disk",
    "ClientMessageAgeLimit": "the age limit of unread messages",
}
"""Place in the configuration -> feature, for the located warning that it is not available yet."""

LOCAL_ZONE: Final = datetime.now().astimezone().tzinfo or UTC
"""The time zone of schedules that name none."""

_OPTION_HELP: Final = {
    "AllowSpoofing": "take the user name that the client gives for its own",
    "RequireLogon": "refuse commands before a logon",
    "RequireUsername": "refuse a logon without a user name",
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
                ),
            ),
            ModuleRule(
                "amps-implicit-authentication-module",
                "accepts any user, and commands without a logon",
                (_flag("AllowSpoofing", "false"),),
            ),
            ModuleRule("amps-default-no-authentication-module", "accepts nobody"),
        )
        if rule.name in AUTHENTICATION_MODULES
    },
    ModuleKind.ENTITLEMENT: {
        name: ModuleRule(name, "gives every user the same answer") for name in ENTITLEMENT_MODULES
    },
    ModuleKind.MESSAGE_TYPE: {
        name: ModuleRule(name, "a message type", open_options=True) for name in BUILT_IN
    },
}

_LIBRARIES: Final[Mapping[str, LibraryRule]] = {
    rule.name: rule
    for rule in (
        LibraryRule(
            "libamps_id_chaining_key_generator.so",
            {
                ModuleKind.KEY_GENERATOR: ModuleRule(
                    "libamps_id_chaining_key_generator.so",
                    "gives all messages of a chain of ids the key of the first",
                    (
                        OptionRule("Key", ValueKind.PATH, "field of a new id", repeatable=True),
                        OptionRule("Primary", ValueKind.PATH, "field of the id at hand"),
                        OptionRule("Secondary", ValueKind.PATH, "field of the id before it"),
                        OptionRule("FileName", ValueKind.TEXT, "file that keeps the chains"),
                        OptionRule(
                            "Validation",
                            ValueKind.BOOLEAN,
                            "check the file at start",
                            default="false",
                        ),
                    ),
                    open_options=True,
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
            "libamps_udf_legacy_compatibility.so",
            {
                ModuleKind.FUNCTIONS: ModuleRule(
                    "libamps_udf_legacy_compatibility.so", "date functions of older versions"
                )
            },
        ),
    )
}


class ProgramCatalogue:
    """The tables above, as the compiler asks for them."""

    @property
    def libraries(self) -> Mapping[str, LibraryRule]:
        """The loadable libraries available here, by base name."""
        return _LIBRARIES

    @property
    def unbuilt(self) -> Mapping[str, str]:
        """What is read but not acted on yet."""
        return UNBUILT

    def modules(self, kind: ModuleKind) -> Mapping[str, ModuleRule]:
        """Return the modules that need no loading, by name."""
        return _MODULES.get(kind, {})

    def check_expression(self, text: str, kind: ExpressionKind) -> str | None:
        """Return None if `text` is a good expression of this kind, else what is wrong."""
        return check(text, Kind(kind.value))

    def check_schedule(self, text: str, form: Literal["Every", "Crontab"]) -> str | None:
        """Return None if `text` is a schedule of this form, else what is wrong."""
        parse = parse_every if form == "Every" else parse_crontab
        try:
            parse(text, LOCAL_ZONE)
        except ScheduleError as error:
            return str(error)
        return None
