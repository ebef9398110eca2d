"""Interfaces of the client of a replay, and of the engine, for readers of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.topics.subscriptions.subscriber import Subscriber

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.topics.settings import EngineSettings
    from server.topics.sow_registry import SowRegistry
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import TaskScheduler


class ReplayEngine(Protocol):
    """The parts of the engine that readers of the log use."""

    @property
    def settings(self) -> EngineSettings:
        """Settings for parsing bodies, and the functions that filters may call."""

    @property
    def log(self) -> ServerLog:
        """The event log."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def turns(self) -> TaskScheduler:
        """The scheduler: the log is read in time slices."""

    @property
    def topics(self) -> TopicTable:
        """The topics in use."""

    @property
    def stores(self) -> SowRegistry:
        """The topics that have records."""

    def flush(self) -> None:
        """Flush all outboxes."""


class ReplayClient(Subscriber, Protocol):
    """The client that receives a replay."""

    @property
    def engine(self) -> ReplayEngine:
        """The engine that it belongs to."""

    def send(self, header: Header) -> None:
        """Send it a message that consists of a header only."""

    def end_subscription(self, sub_id: str) -> None:
        """End one of its subscriptions."""

    def close(self, reason: str) -> None:
        """Disconnect the client.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection).
        """
