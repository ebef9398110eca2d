"""What replication has to know of what is recorded because of this instance's own clients.

Publishes of clients are checked against the highest number of their publisher, and nothing else. So
what they leave out is told to `Known`: it may still come from another instance. And what is
recorded is told to `Recent`, so that a message of the same name that says something else is seen.
Without replication there are no notes, and nobody does anything for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.journal.layout import crc32c

if TYPE_CHECKING:
    from server.journal import Origin, Topic
    from server.replication import Known, Recent
    from server.topics.unsettled import Unsettled


class Notes:
    """Takes note of what has just been recorded.

    Args:
        known: what this instance has of each publisher.
        recent: what it recorded last.
        unsettled: up to which of their numbers publishers' messages are settled.
        settled: tells the txid up to which everything is.
        identity: makes the identity of a publisher that gives no numbers from its client hash.

    Attributes:
        unsettled: see above.
    """

    def __init__(
        self,
        known: Known,
        recent: Recent,
        unsettled: Unsettled,
        settled: Callable[[], int],
        identity: Callable[[int], int],
    ) -> None:
        self.unsettled: Final = unsettled
        self._settled: Final = settled
        self._known: Final = known
        self._recent: Final = recent
        self._identity: Final = identity

    def lacks(self, client: int, sequence: int) -> bool:
        """Whether a message may still come that is not above its publisher's highest number."""
        return bool(self._known.gaps(client)) and bool(self._known.unknown(client, (sequence,)))

    def take(
        self,
        client: int,
        before: int,
        sequences: Sequence[int],
        checksums: Sequence[int],
        txids: Sequence[int],
        topic: Topic,
        origin: Origin,
    ) -> None:
        """Messages of one client, or other events that it has caused, have been recorded.

        Args:
            client: its hash.
            before: the highest number that it had given before.
            sequences: its numbers for them; empty if it gives none.
            checksums: of what was recorded, with extras.
            txids: their numbers in the log, which follow on one another.
            topic: where they were published.
            origin: their user.
        """
        if sequences:
            self.take_numbers(client, before, sequences, txids[-1])
        identity = client if sequences else self._identity(client)
        ends = txids[0], txids[-1]
        self._recent.note(identity, sequences or txids, checksums, ends, topic, origin)

    def take_one(
        self,
        client: int,
        before: int,
        sequence: int,
        data: bytes,
        txid: int,
        topic: Topic,
        origin: Origin,
    ) -> None:
        """The same for a single message, whose number is 0 if its client gives none."""
        identity = client
        if sequence:
            self.take_numbers(client, before, (sequence,), txid)
        else:
            identity, sequence = self._identity(client), txid
        self._recent.note_one(identity, sequence, crc32c(data), txid, topic, origin)

    def take_numbers(self, client: int, before: int, sequences: Sequence[int], txid: int) -> None:
        """A client has used numbers, which ascend, up to that of an entry. See `take`."""
        self.unsettled.note(client, before, sequences[-1], txid, self._settled())
        if sequences[-1] - before != len(sequences):
            self._known.noted(client, before, sequences)
