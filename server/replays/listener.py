"""Whom a replay is for, and what stands around it, as readers of the log see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.subscriptions.subscriber import Subscriber

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Slices
    from server.topics.settings import Settings
    from server.topics.stores import Stores
    from server.topics.table import TopicTable


class Surroundings(Protocol):
    """What readers of the log work with."""

    @property
    def settings(self) -> Settings:
        """How bodies are read, and what filters may call."""

    @property
    def log(self) -> Log:
        """Where is said what cannot be read."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""

    @property
    def turns(self) -> Slices:
        """Shares out the time: the log is read in slices."""

    @property
    def topics(self) -> TopicTable:
        """The topics in use."""

    @property
    def stores(self) -> Stores:
        """The topics that have records."""

    def flush(self) -> None:
        """Let everything leave that is waiting in outboxes."""


class Listener(Subscriber, Protocol):
    """The client that a replay is for."""

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    def send(self, header: Header) -> None:
        """Send it a message that is nothing but a header."""

    def end_subscription(self, sub_id: str) -> None:
        """End one of its subscriptions."""

    def close(self, reason: str) -> None:
        """Disconnect it.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection).
        """
