"""The modules of actions that belong to the audit trail: an operator might have done the same.

Steps that process messages and records, one by one, do not: there may be very many of them.
"""

from __future__ import annotations

from typing import Final

ADMINISTRATIVE: Final = frozenset(
    f"amps-action-do-{name}"
    for name in (
        "archive-journal",
        "compact-sow",
        "compress-journal",
        "disable-authentication",
        "disable-entitlement",
        "disable-proxied-transfer",
        "disable-transport",
        "downgrade-replication",
        "enable-authentication",
        "enable-entitlement",
        "enable-proxied-transfer",
        "enable-transport",
        "execute-system",
        "minidump",
        "reload-configuration",
        "remove-files",
        "remove-journal",
        "reset-authentication",
        "reset-entitlement",
        "rotate-logs",
        "run-pipeline",
        "shutdown",
        "truncate-statistics",
        "upgrade-replication",
        "vacuum-statistics",
    )
)
"""The modules of such steps."""
