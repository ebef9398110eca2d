"""What publishing and deleting have in common: who sends, and what the server refuses."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Self

from amperage.client.blocking_commands import BlockingCommands
from pipeline.amps.connection import require_log
from pipeline.amps.options import AmpsOptions
from pipeline.bodies import Outgoing
from pipeline.errors import PipelineError, option_error

REFUSALS_KEPT: Final = 10
"""Of all that a task is refused, so many are reported."""

NOT_ONCE: Final = (
    ", so that a task which is tried again would publish twice; exactly_once=false allows that"
)

_BATCH_BITS: Final = 32
"""A task has fewer than 2^32 rows in a micro-batch, and a query fewer than 2^31 batches."""

LOGON_OPTIONS: Final = "ack_conflation=10ms"
"""Have a task wait for the last of its acknowledgements no longer than that."""


class Identity(NamedTuple):
    """Who sends.

    Attributes:
        name: the client name, the same whenever the task runs.
        batch: the micro-batch; of a write that is no stream's, its version.
        is_stream: whether it is a stream's.
    """

    name: str
    batch: int
    is_stream: bool = True

    def of_this_try(self) -> Identity:
        """Somebody else each time, of whom the server has nothing yet."""
        return self._replace(name=f"{self.name}-{uuid.uuid4().hex[:12]}")

    @property
    def before_first(self) -> int:
        """The sequence number before that of the first row."""
        return self.batch << _BATCH_BITS

    def already_sent(self, last: int) -> int:
        """How many of the task's commands the server has.

        Args:
            last: the highest sequence number that it has from this client name.

        Raises:
            PipelineError: that number is of a later micro-batch, or version.
        """
        latest = last >> _BATCH_BITS
        if latest > self.batch and not self.is_stream:
            raise option_error(
                "write_version",
                self.batch,
                f"the server has version {latest} of this write_id already, and what is new in this"
                " one would be taken for sent: expected a higher number for each new write",
            )
        if latest > self.batch:
            raise PipelineError(
                f"checkpoint: this is micro-batch {self.batch}, and the server has micro-batch"
                f" {latest} of this query already; the checkpoint has been set back, and what is"
                " new in this batch would be taken for sent: begin a new one"
            )
        return max(0, last - self.before_first)


class Refusal(NamedTuple):
    """A message that the server would not take.

    Attributes:
        topic: where it was to go.
        body: the message; or the key of what was to be deleted.
        error: why.
    """

    topic: str
    body: bytes
    error: str


class Sink(ABC):
    """Sends the rows of one task.

    Args:
        options: where to.
        identity: as whom.

    Attributes:
        refusals: what the server has refused.
    """

    def __init__(self, options: AmpsOptions, identity: Identity) -> None:
        self._options = options
        self._identity = identity
        self._checked: set[str] = set()
        self.refusals: list[Refusal] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @abstractmethod
    def send(self, outgoing: Outgoing) -> None:
        """Send messages; those that the server has already do not count."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything is on stable storage."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def _refused(self, topic: str, body: bytes, error: Exception) -> None:
        if len(self.refusals) < REFUSALS_KEPT:
            self.refusals.append(Refusal(topic, body, str(error)))

    def _check_topics(self, client: BlockingCommands, topics: set[str]) -> None:
        """Make sure that the server can tell what it has already."""
        if self._options.exactly_once:
            for topic in topics - self._checked:
                require_log(client, topic, NOT_ONCE, literal=True)
        self._checked |= topics
