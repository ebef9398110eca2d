"""The common base of publishing and deleting: the identity of the sender, and refusals."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Self

from amperage.client.blocking_commands import BlockingCommands
from pipeline.amps.connection import require_log
from pipeline.amps.options import AmpsOptions
from pipeline.bodies import OutgoingMessages
from pipeline.errors import PipelineError, option_error

MAX_REPORTED_REFUSALS: Final = 10
"""The maximum number of refusals that a task reports."""

NOT_ONCE: Final = (
    ", so that a retried task would publish its rows twice; exactly_once=false allows that"
)

_BATCH_BITS: Final = 32
"""A task has fewer than 2^32 rows in a micro-batch, and a query has fewer than 2^31 batches."""

LOGON_OPTIONS: Final = "ack_conflation=10ms"
"""Limits the time that a task waits for the last of its acknowledgements."""


class TaskIdentity(NamedTuple):
    """The publisher identity of a task.

    Attributes:
        name: the client name, the same in each attempt of the task.
        batch: the micro-batch; for a batch write, its version.
        is_stream: whether the task belongs to a stream.
    """

    name: str
    batch: int
    is_stream: bool = True

    def for_this_attempt(self) -> TaskIdentity:
        """Return an identity for this attempt only, from which the server has nothing yet."""
        return self._replace(name=f"{self.name}-{uuid.uuid4().hex[:12]}")

    @property
    def base_sequence(self) -> int:
        """The sequence number before the one of the first row."""
        return self.batch << _BATCH_BITS

    def count_sent(self, last: int) -> int:
        """Return the number of the task's commands that the server has.

        Args:
            last: the highest sequence number that the server has from this client name.

        Raises:
            PipelineError: that number belongs to a later micro-batch or version.
        """
        latest = last >> _BATCH_BITS
        if latest > self.batch and not self.is_stream:
            raise option_error(
                "write_version",
                self.batch,
                f"the server already has version {latest} of this write_id and would drop new rows"
                " of this version as duplicates: expected a higher number for each new write",
            )
        if latest > self.batch:
            raise PipelineError(
                f"checkpoint: this is micro-batch {self.batch}, and the server already has"
                f" micro-batch {latest} of this query: the checkpoint has been reset, and the"
                " server would drop new rows of this batch as duplicates; use a new checkpoint"
            )
        return max(0, last - self.base_sequence)


class RefusedMessage(NamedTuple):
    """A message that the server refused.

    Attributes:
        topic: the topic of the message.
        body: the message; or the key of the record to delete.
        error: the reason.
    """

    topic: str
    body: bytes
    error: str


class TaskSink(ABC):
    """Sends the rows of one task.

    Args:
        options: the server.
        identity: the client name and sequence numbers.

    Attributes:
        refusals: the messages that the server has refused.
    """

    def __init__(self, options: AmpsOptions, identity: TaskIdentity) -> None:
        self._options = options
        self._identity = identity
        self._checked_topics: set[str] = set()
        self.refusals: list[RefusedMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @abstractmethod
    def send(self, outgoing: OutgoingMessages) -> None:
        """Send messages, except messages that the server has already."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything is on stable storage."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def _record_refusal(self, topic: str, body: bytes, error: Exception) -> None:
        if len(self.refusals) < MAX_REPORTED_REFUSALS:
            self.refusals.append(RefusedMessage(topic, body, str(error)))

    def _check_topics(self, client: BlockingCommands, topics: set[str]) -> None:
        """Check that the server can detect duplicates in these topics."""
        if self._options.exactly_once:
            for topic in topics - self._checked_topics:
                require_log(client, topic, NOT_ONCE, literal=True)
        self._checked_topics |= topics
