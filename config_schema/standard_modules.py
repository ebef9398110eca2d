"""Modules that belong to the language: a configuration may name them without loading anything.

Authentication and entitlement are not among them. Which of those exist is for the program to say,
because a module that is merely known would leave an instance open.
Source: AMPS User Guide, Configuring Protocols, Configuring Message Types, Transport Filters,
Providing an Identity for Outbound Connections, Optionally-Loaded Modules.
"""

from collections.abc import Mapping
from typing import Final

from config_schema.catalogue import ModuleKind, ModuleRule, OptionRule, ValueKind


def _table(*rules: ModuleRule) -> Mapping[str, ModuleRule]:
    return {rule.name: rule for rule in rules}


STANDARD_MODULES: Final[Mapping[ModuleKind, Mapping[str, ModuleRule]]] = {
    ModuleKind.PROTOCOL: _table(
        ModuleRule("amps", "commands of the AMPS clients"),
        ModuleRule("websocket", "the same commands for programs in a browser"),
        ModuleRule("fix", "old clients with headers in FIX"),
        ModuleRule("nvfix", "old clients with headers in NVFIX"),
        ModuleRule("xml", "old clients with headers in XML"),
        ModuleRule("soap", "old clients with headers in SOAP"),
        ModuleRule("postgresql", "SQL queries of clients of PostgreSQL"),
        ModuleRule("flight-sql", "SQL queries of clients of Arrow Flight SQL"),
    ),
    ModuleKind.MESSAGE_TYPE: _table(
        ModuleRule("fix", "FIX messages, by tag number"),
        ModuleRule("nvfix", "name-value pairs in the manner of FIX"),
        ModuleRule("xml", "XML documents"),
        ModuleRule("json", "JSON documents"),
        ModuleRule("bson", "BSON documents"),
        ModuleRule("bflat", "BFlat messages"),
        ModuleRule("msgpack", "MessagePack messages"),
        ModuleRule("binary", "messages that are not looked into"),
        ModuleRule("protobuf", "messages of a Protocol Buffers definition"),
        ModuleRule("struct", "C structs of fixed format"),
        ModuleRule("composite-local", "several messages in one, fields by part"),
        ModuleRule("composite-global", "several messages in one, fields of all parts together"),
    ),
    ModuleKind.TRANSPORT_FILTER: _table(
        ModuleRule(
            "amps-topic-translator",
            "changes topic names of incoming commands",
            (
                OptionRule(
                    "Topic",
                    ValueKind.TOPIC_TRANSLATION,
                    "original:translated, where the original may be a regular expression",
                    required=True,
                    repeatable=True,
                ),
            ),
        ),
        ModuleRule(
            "amps-conflated-topic-translator",
            "changes topic names of subscriptions and conflates them",
            (
                OptionRule(
                    "Topic",
                    ValueKind.CONFLATED_TRANSLATION,
                    "original:translated:interval",
                    required=True,
                    repeatable=True,
                ),
            ),
        ),
    ),
    ModuleKind.AUTHENTICATOR: _table(
        ModuleRule(
            "amps-default-authenticator-module",
            "gives a name and a password to other instances",
            (
                OptionRule("User", ValueKind.TEXT, "name of the user; who runs the server if not"),
                OptionRule("Password", ValueKind.TEXT, "the password"),
                OptionRule("PasswordFileName", ValueKind.TEXT, "file that holds the password"),
                OptionRule(
                    "PasswordEnvironmentVariable",
                    ValueKind.TEXT,
                    "environment variable that holds the password",
                ),
            ),
        ),
    ),
}
"""The modules by their use."""

LIBRARIES_OF_AMPS: Final = (
    "libamps_exec_authenticator.so",
    "libamps_http_entitlement.so",
    "libamps_id_chaining_key_generator.so",
    "libamps_multi_authentication.so",
    "libamps_multi_authenticator.so",
    "libamps_oauth_authentication.so",
    "libamps_simple_access_entitlement.so",
    "libamps_transport_filter_correlation_id_timestamper.so",
    "libamps_udf_experimental.so",
    "libamps_udf_legacy_compatibility.so",
)
"""Loadable libraries that come with AMPS, whether or not the program stands in for them."""
