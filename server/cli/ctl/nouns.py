"""The nouns and verbs of `amps-ctl`, each with its path below /amps/administrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LIST: Final = "list"


@dataclass(frozen=True, slots=True)
class CtlVerb:
    """An operation.

    Attributes:
        operation: the last part of its path; empty if the entry itself is the operation.
        help: its effect, in a few words.
        has_filter: whether it may be restricted to messages that match a filter.
    """

    operation: str
    help: str
    has_filter: bool = False


@dataclass(frozen=True, slots=True)
class CtlNoun:
    """Things that operations apply to.

    Attributes:
        help: the things, in a few words.
        path: the path of the list of them, below /amps/administrator.
        metavar: the name of one in the help; empty if operations apply to the instance itself.
        verbs: the operations, besides the list of entries.
    """

    help: str
    path: tuple[str, ...]
    metavar: str
    verbs: Mapping[str, CtlVerb]

    @property
    def verb_names(self) -> tuple[str, ...]:
        """The names of all verbs."""
        return (*((LIST,) if self.metavar else ()), *self.verbs)


LOG_TARGETS: Final = CtlNoun("targets of the log", ("logging", "targets"), "TARGET", {})
"""The entries that `log-level` changes; `log-target list` shows them."""

NOUNS: Final[Mapping[str, CtlNoun]] = {
    "client": CtlNoun(
        "connections of clients",
        ("clients",),
        "CLIENT",
        {"disconnect": CtlVerb("disconnect", "close the connection")},
    ),
    "transport": CtlNoun(
        "transports",
        ("transports",),
        "TRANSPORT",
        {
            "enable": CtlVerb("enable", "accept connections"),
            "disable": CtlVerb("disable", "accept no connections, and close those that exist"),
        },
    ),
    "replication": CtlNoun(
        "destinations of replication",
        ("replication",),
        "DESTINATION",
        {
            "downgrade": CtlVerb("downgrade", "acknowledge publishes without waiting for it"),
            "upgrade": CtlVerb("upgrade", "wait for it again before publishes are acknowledged"),
            "reconnect": CtlVerb("reconnect", "close the connection and connect again"),
        },
    ),
    "queue": CtlNoun(
        "queues",
        ("queues",),
        "QUEUE",
        {
            "enable-proxied-transfer": CtlVerb(
                "enable_proxied_transfer", "claim messages of instances that cannot be reached"
            ),
            "disable-proxied-transfer": CtlVerb(
                "disable_proxied_transfer", "leave messages to the instances that own them"
            ),
            "redrive": CtlVerb(
                "redrive", "return dead letters to the queues that they come from", has_filter=True
            ),
            "move": CtlVerb(
                "move", "move messages that no consumer has to a second QUEUE", has_filter=True
            ),
            "purge": CtlVerb("purge", "remove messages that no consumer has", has_filter=True),
        },
    ),
    "sow": CtlNoun(
        "topics with records",
        ("sow",),
        "TOPIC",
        {"compact": CtlVerb("compact", "release the unused space of its file")},
    ),
    "journal": CtlNoun(
        "full journals of the transaction log",
        ("transaction_log", "journals"),
        "JOURNAL",
        {
            "compress": CtlVerb("compress", "compress it and all older ones"),
            "archive": CtlVerb("archive", "archive it and all older ones"),
            "remove": CtlVerb("remove", "remove it and all older ones"),
        },
    ),
    "action": CtlNoun(
        "actions with the trigger amps-action-on-admin",
        ("actions",),
        "ACTION",
        {"run": CtlVerb("", "run it, with variables NAME=VALUE")},
    ),
    "authentication": CtlNoun(
        "logons",
        ("authorization", "authentication"),
        "",
        {"reset": CtlVerb("reset", "discard cached decisions")},
    ),
    "entitlement": CtlNoun(
        "permissions",
        ("authorization", "entitlement"),
        "",
        {
            "reset": CtlVerb("reset", "discard cached decisions"),
            "check": CtlVerb("check", "say whether this user may request PATH"),
        },
    ),
    "log": CtlNoun(
        "the log",
        ("logging",),
        "",
        {"rotate": CtlVerb("rotate", "continue log files in their next files")},
    ),
    "log-target": LOG_TARGETS,
    "diagnostics": CtlNoun(
        "the state of the instance",
        ("diagnostics",),
        "",
        {"dump": CtlVerb("dump", "write the state of the queues to the log")},
    ),
    "minidump": CtlNoun(
        "the state of the process",
        (),
        "",
        {"write": CtlVerb("minidump", "write it to a file in MiniDumpDirectory")},
    ),
}
"""The nouns, in the order of the help."""
