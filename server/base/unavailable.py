"""What a configuration asks for, is not built yet, and must not be mistaken for something else.

Most of what is not built is ignored, with a warning (server/assembly/catalogue.py has the list).
But what is made from a queue would be taken for empty, and a synchronous destination that is not
there lets publishers be told that their messages are safe. So the first refuses all commands; and
what follows is said where it is configured, in those terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from config_schema.spec import ConflatedTopicSpec, QueueSpec, TopicRef, ViewSpec

if TYPE_CHECKING:
    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec

VIEWS: Final = "views of queues are not available"
"""Why a command is refused."""


def unavailable_topics(spec: InstanceSpec) -> Mapping[TopicRef, str]:
    """The topics that refuse all commands, and what there is to say about each."""
    found: dict[TopicRef, str] = {}
    queues = {store.ref for store in spec.sow if isinstance(store, QueueSpec)}
    for store in spec.sow:
        match store:
            case ViewSpec(underlying=sources) | ConflatedTopicSpec(underlying=sources):
                refs = sources if isinstance(sources, tuple) else (sources,)
                if missing := [ref for ref in refs if ref in found or ref in queues]:
                    found[store.ref] = f"{store.name!r} is made from {missing[0].name!r}"
    return found


def warn_of_unavailable(spec: InstanceSpec, problems: Problems) -> None:
    """Say what follows from what is not available, where it is configured."""
    topics = unavailable_topics(spec)
    for store in spec.sow:
        about = topics.get(store.ref)
        if about is not None:
            element = "View" if isinstance(store, ViewSpec) else "ConflatedTopic"
            then = f"{VIEWS} yet, and {about}: all commands for it are refused"
            problems.warning(store, f"SOW/{element}", then)
    for destination in spec.replication:
        if destination.sync_type == "sync":
            problems.warning(
                destination,
                "Replication/Destination",
                "replication is not available yet: publishers are told persisted although "
                f"{destination.name} does not have the message",
            )
