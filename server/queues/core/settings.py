"""Settings of a queue: its configuration in the units of the core.

Source: AMPS User Guide, Configuring Queues in a SOW.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from config_schema.spec import QueueSpec

MAX_EARLY_ACKS: Final = 1_000_000
"""Limit of acknowledgements that await their messages; beyond it, the oldest is dropped."""

_MICROSECOND: Final = 1_000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of one queue. All times are microseconds.

    Attributes:
        at_most_once: whether messages leave the queue when they are sent.
        lease_period: duration of a lease; None without end, as it is with `at_most_once`.
        max_backlog: leases that the queue may have at one time; None without limit.
        max_per_subscription_backlog: leases that a consumer may have at one time.
        expiration: how long a message stays, None without end.
        expiration_model: how the queue's expiration and the message's own are combined.
        fairness: the choice of the next consumer.
        strict: whether only its holder may acknowledge a leased message.
        max_deliveries: a message that returns after so many deliveries is expired; 0 for never.
        max_cancels: a message that is cancelled so many times is expired; 0 for never.
        dead_letters: whether a message is published for every message that is expired (an
            extension).
        prioritized: whether messages have priorities; higher ones are delivered first.
        keyed: whether messages have keys, and those of one key are delivered one after the other,
            each when the one before has left the queue (an extension).
        target_depth: messages that the queue keeps, None for all.
        deferred_ack_expiration: how long an acknowledgement is retained until its message arrives.
        retry_delay: how long a message is not available after its first cancel; doubles with every
            further one (an extension).
        max_retry_delay: the limit of that delay.
    """

    at_most_once: bool = False
    lease_period: int | None = None
    max_backlog: int | None = None
    max_per_subscription_backlog: int = 1
    expiration: int | None = None
    expiration_model: Literal["queue", "latest", "earliest", "default"] = "default"
    fairness: Literal["fast", "round-robin", "proportional"] = "proportional"
    strict: bool = False
    max_deliveries: int = 0
    max_cancels: int = 0
    dead_letters: bool = False
    prioritized: bool = False
    keyed: bool = False
    target_depth: int | None = None
    deferred_ack_expiration: int = 86_400_000_000
    retry_delay: int = 0
    max_retry_delay: int = 3_600_000_000

    @property
    def records_deliveries(self) -> bool:
        """True if deliveries are recorded, so that their counts survive restarts."""
        return self.max_deliveries > 0 or self.dead_letters

    def expiration_time(self, time: int, lifetime: int | None) -> int | None:
        """Return when a message expires.

        Args:
            time: when the message was recorded.
            lifetime: its own expiration, relative to `time`; None if it has none.

        Returns:
            The time, None for never.
        """
        queue_lifetime = self.expiration
        if self.expiration_model == "queue":
            effective = queue_lifetime
        elif self.expiration_model == "default":
            effective = queue_lifetime if lifetime is None else lifetime
        elif self.expiration_model == "earliest":
            lifetimes = (each for each in (lifetime, queue_lifetime) if each is not None)
            effective = min(lifetimes, default=None)
        else:  # latest: without one, the queue's expiration counts as infinite
            effective = None if queue_lifetime is None else max(queue_lifetime, lifetime or 0)
        return None if effective is None else time + effective

    def retry_after(self, cancels: int) -> int:
        """Return the retry delay of a message after a number of cancels."""
        if not self.retry_delay:
            return 0
        return min(self.retry_delay << min(cancels - 1, 40), self.max_retry_delay)


def settings_of(spec: QueueSpec) -> QueueSettings:
    """Convert a configuration to settings; its intervals are nanoseconds."""
    return QueueSettings(
        at_most_once=spec.semantics == "at-most-once",
        lease_period=None if spec.semantics == "at-most-once" else _micros(spec.lease_period),
        max_backlog=spec.max_backlog,
        max_per_subscription_backlog=spec.max_per_subscription_backlog,
        expiration=_micros(spec.expiration),
        expiration_model=spec.expiration_model,
        fairness=spec.fairness_model,
        strict=spec.leasing == "strict",
        max_deliveries=spec.max_deliveries,
        max_cancels=spec.max_cancels,
        dead_letters=spec.dead_letter_topic is not None,
        prioritized=spec.priority is not None,
        keyed=spec.order_key is not None,
        target_depth=spec.target_queue_depth,
        deferred_ack_expiration=_micros(spec.deferred_ack_expiration) or 1,
        retry_delay=_micros(spec.retry_delay) or 0,
        max_retry_delay=_micros(spec.max_retry_delay) or 0,
    )


def _micros(nanoseconds: int | None) -> int | None:
    """Round up to microseconds, so that a short interval does not become 0."""
    return None if nanoseconds is None else -(-nanoseconds // _MICROSECOND)
