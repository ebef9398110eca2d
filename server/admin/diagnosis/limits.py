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
        subject: the thing that is limited, in words.
        used_amount: the present amount.
        limit: the greatest amount allowed.
        consequence: the consequence of more.
    """

    name: str
    subject: str
    used_amount: float
    limit: float
    consequence: str

    @property
    def used_share(self) -> float:
        """The share of the limit that is used."""
        return self.used_amount / self.limit if self.limit else 1.0

    @property
    def is_nearly_reached(self) -> bool:
        """Whether it is nearly reached, or more than that."""
        return self.used_share >= NEAR_LIMIT_SHARE


def limits(client: ClientFacts) -> list[LimitUsage]:
    """Return the limits that apply to a client."""
    usages = [
        LimitUsage(
            "subscriptions and queries",
            "bytes that its subscriptions and queries take",
            client.command_memory_bytes,
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
    if client.backlog is not None:
        usages += _of_slow_clients(client, client.backlog)
    return usages


def _of_slow_clients(client: ClientFacts, backlog: BacklogStats) -> list[LimitUsage]:
    configured = backlog.limits
    offline, cut_off = "pending output is written to disk", "it is disconnected"
    used_bytes = backlog.memory_bytes + backlog.held_bytes
    usages = [
        LimitUsage(
            "ClientMaxCapacity of MessageMemoryLimit",
            "bytes of memory that are kept for it",
            used_bytes,
            configured.memory_bytes * configured.client_share,
            offline if backlog.memory_bytes else cut_off,
        ),
        LimitUsage(
            "MessageMemoryLimit",
            "bytes of memory that are kept for all clients that share the limit",
            backlog.pool_memory_bytes,
            configured.memory_bytes,
            "what waits for the largest of them goes to disk",
        ),
        LimitUsage(
            "ClientMaxCapacity of MessageDiskLimit",
            "bytes that wait for it on disk",
            backlog.disk_bytes,
            configured.disk_bytes * configured.client_share,
            cut_off,
        ),
        LimitUsage(
            "MessageDiskLimit",
            "bytes that wait on disk for all clients that share the limit",
            backlog.pool_disk_bytes,
            configured.disk_bytes,
            "the largest of them is disconnected",
        ),
    ]
    if configured.max_age_s is not None:
        wait_s = client.socket_stats.unsent_age_s if client.is_behind else 0.0
        usages.append(
            LimitUsage(
                "ClientMessageAgeLimit",
                "seconds for which the oldest byte has waited for it",
                wait_s,
                configured.max_age_s,
                cut_off,
            )
        )
    return usages
