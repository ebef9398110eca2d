"""Ownership of messages of a queue that several instances share.

Each instance has all messages of such a queue, and one instance is the owner of a message: only its
consumers get it. The first owner follows from the instance where the message was published, without
communication. After that, only the owner transfers it, and records that (`Transferred`); the new
one is the owner once it has found the event in its own log. So a transfer never causes two owners
at a time, even if an instance fails in between: an unrecorded transfer did not happen, and a
recorded one arrives.

Instances receive transfers in different orders, and two instances may become owners of a message:
its publisher has sent it to both, or an instance has taken it over from an owner that was merely
unreachable (proxied transfer). So an `OwnershipClaim` counts the transfers of the message. Of two
claims, the one with more transfers wins; between equals, the one with the later name wins.
Instances that receive both, in any order, arrive at the same result.

If a message was published at two instances, each of them detects it when it receives the message a
second time, over another path: as soon as they have a link. The one with the earlier name leaves it
to the other (`Queue.resolve_dual_ownership`). An instance that detects this records it: the message
does not arrive again, and an instance further on may have received only one of the two.

Source: AMPS User Guide, Queue Message Ownership.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from server.queues.core.events import PublisherSequence

MAX_EARLY_CLAIMS: Final = 131_072
"""Limit of claims retained for messages that have not arrived; beyond it, the oldest is dropped."""


class OwnershipClaim(NamedTuple):
    """A claim that an instance owns a message; a greater one replaces a lesser one.

    Attributes:
        transfer_count: number of transfers of the message.
        owner: the name of the instance.
    """

    transfer_count: int
    owner: str


class OwnershipTable:
    """The number of transfers of the messages of one queue.

    Attributes:
        early_claims: claims to messages that have not arrived, by their bookmarks.
    """

    def __init__(self) -> None:
        self.early_claims: OrderedDict[PublisherSequence, OwnershipClaim] = OrderedDict()
        self._transfer_counts: dict[int, int] = {}

    def transfer_count(self, offset: int) -> int:
        """Return the number of transfers of a message."""
        return self._transfer_counts.get(offset, 0)

    def set_transfer_count(self, offset: int, count: int) -> None:
        """Set the number of transfers of a message."""
        if count:
            self._transfer_counts[offset] = count

    def drop_transfer_count(self, offset: int) -> None:
        """Drop the number of transfers of a message that has left the queue."""
        self._transfer_counts.pop(offset, None)

    def retain_early_claim(self, bookmark: PublisherSequence, claim: OwnershipClaim) -> None:
        """Retain the claim to a message until the message arrives."""
        self.early_claims[bookmark] = max(claim, self.early_claims.pop(bookmark, claim))
        if len(self.early_claims) > MAX_EARLY_CLAIMS:
            self.early_claims.popitem(last=False)

    def apply_early_claim(self, bookmark: PublisherSequence, offset: int) -> OwnershipClaim | None:
        """Apply and return the retained claim to an arrived message, None if there is none."""
        claim = self.early_claims.pop(bookmark, None)
        if claim is not None:
            self.set_transfer_count(offset, claim.transfer_count)
        return claim

    def drop_early_claims(self, bookmarks: Iterable[PublisherSequence]) -> None:
        """Drop the claims to messages that will not arrive."""
        for bookmark in bookmarks:
            self.early_claims.pop(bookmark, None)
