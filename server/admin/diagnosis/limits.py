"""The limits that apply to a client, and how close it is to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.util.limits import MAX_CLIENT_MEMORY, MAX_QUERIES, MAX_SUBSCRIPTIONS

if TYPE_CHECKING:
    from server.admin.diagnosis.facts import ClientFacts
    from server.topics.subscriptions.limits.slow_clients import BacklogStats

NEAR_LIMIT_SHARE: Final = 0.8
"""The share of a limit from which on the client is near it."""


class LimitUsage(NamedTuple):
    """A limit.

    Attributes:
        name: the setting or rule that sets it.
        what: the thing that is limited, in words.
        used: the present amount.
        limit: the greatest amount allowed.
        beyond: the consequence of more.
    """

    name: str
    what: str
    used: float
    limit: float
    beyond: str

    @property
    def share(self) -> float:
        """The share of the limit that is used."""
        return self.used / self.limit if self.limit else 1.0

    @property
    def is_near(self) -> bool:
        """Whether it is nearly reached, or more than that."""
        return self.share >= NEAR_LIMIT_SHARE


def limits(client: ClientFacts) -> list[LimitUsage]:
    """Return the limits that apply to a client."""
    found = [
        LimitUsage(
            "subscriptions and queries",
            "bytes that its subscriptions and queries take",
            client.memory_of_commands,
            MAX_CLIENT_MEMORY,
            "further ones are refused",
        ),
        LimitUsage(
            "subscriptions",
            "subscriptions",
            client.subscription_count,
            MAX_SUBSCRIPTIONS,
            "further ones are refused",
        ),
        LimitUsage(
            "queries",
            "queries under way",
            len(client.queries),
            MAX_QUERIES,
            "the commands behind them wait",
        ),
    ]
    if client.kept is not None:
        found += _of_slow_clients(client, client.kept)
    return found


def _of_slow_clients(client: ClientFacts, kept: BacklogStats) -> list[LimitUsage]:
    configured = kept.limits
    offline, cut_off = "what waits goes to disk", "it is disconnected"
    occupied = kept.memory + kept.held
    found = [
        LimitUsage(
            "ClientMaxCapacity of MessageMemoryLimit",
            "bytes of memory that are kept for it",
            occupied,
            configured.memory * configured.share,
            offline if kept.memory else cut_off,
        ),
        LimitUsage(
            "MessageMemoryLimit",
            "bytes of memory that are kept for all clients that share the limit",
            kept.pool_memory,
            configured.memory,
            "what waits for the largest of them goes to disk",
        ),
        LimitUsage(
            "ClientMaxCapacity of MessageDiskLimit",
            "bytes that wait for it on disk",
            kept.disk,
            configured.disk * configured.share,
            cut_off,
        ),
        LimitUsage(
            "MessageDiskLimit",
            "bytes that wait on disk for all clients that share the limit",
            kept.pool_disk,
            configured.disk,
            "the largest of them is disconnected",
        ),
    ]
    if configured.age is not None:
        waits = client.readings.waits if client.is_behind else 0.0
        found.append(
            LimitUsage(
                "ClientMessageAgeLimit",
                "seconds for which the oldest byte has waited for it",
                waits,
                configured.age,
                cut_off,
            )
        )
    return found
