"""What a configuration asks for, is not built yet, and must not be mistaken for something else.

Most of what is not built is ignored, with a warning (server/assembly/catalogue.py has the list).
But a synchronous destination that is not there lets publishers be told that their messages are
safe. So that is said where it is configured, in those terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec


def warn_of_unavailable(spec: InstanceSpec, problems: Problems) -> None:
    """Say what follows from what is not available, where it is configured."""
    for destination in spec.replication:
        if destination.sync_type == "sync":
            problems.warning(
                destination,
                "Replication/Destination",
                "replication is not available yet: publishers are told persisted although "
                f"{destination.name} does not have the message",
            )
