"""The role of this instance in a queue that several instances share.

    a message's origin in the log --> first_owner: its owner when it enters the queue
    events of other instances ------> apply_remote_event: the ends and transfers of messages there
    nothing left to deliver --------> process_transfers: request messages, or transfer some

The decisions about ownership and requests are made in server/queues/core/ (`ownership`,
`ownership_transfer`). A queue is shared if this instance replicates it. Otherwise, and as a
LocalQueue, it belongs to this instance alone, which owns all its messages.

Source: AMPS User Guide, Queue Replication Types; Replicated Queues.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from server.queues.core import (
    OwnershipTransfers,
    Transferred,
    decode_peer_message,
    encode_peer_message,
)
from server.queues.core.peer_messages import TransferRequest
from server.replication.core import hops
from server.storage.journal import EVENTS, JournalUnreadableError, LogSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import QueueSpec
    from server.queues.core import DomainQueueEvent, PublisherSequence, Queue
    from server.queues.topic.context import QueueServices
    from server.queues.topic.queue_journal import QueueJournal


class SharedQueue:
    """The connection of one queue with its counterparts at other instances.

    Args:
        spec: the queue.
        instance: the name of this instance.
        wake: schedules a delivery slice of the queue, which calls `process_transfers`.
        services: the server's services for the queue.

    Attributes:
        domain: distinguishes the queue from others of the same name; see `DomainQueueEvent`.
        is_shared: other instances have the queue, too.
        transfers: makes the decisions; exists after `begin`.
    """

    transfers: OwnershipTransfers

    def __init__(
        self, spec: QueueSpec, instance: str, wake: Callable[[], None], services: QueueServices
    ) -> None:
        is_local, is_group_local = spec.kind == "LocalQueue", spec.kind == "GroupLocalQueue"
        domain = spec.group_local_queue_domain or services.group
        self.domain: Final = domain if is_group_local else ""
        self.is_shared: Final = not is_local and services.is_replicated(
            spec.message_type, spec.name
        )
        self._accepts_remote_events: Final = not is_local
        self._wake: Final = wake
        self._name: Final = spec.name
        self._instance: Final = instance
        self._initial_owner: Final = spec.initial_owner
        self._subject: Final = f"{spec.message_type}/{spec.name}/{self.domain}"
        self._services: Final = services

    def begin(self, core: Queue, queue_journal: QueueJournal) -> None:
        """Start for a queue, and listen to other instances if it is shared.

        Args:
            core: the queue.
            queue_journal: appends the queue's events to the log.
        """
        queue_peers = self._services.queue_peers
        self._core = core
        self._queue_journal = queue_journal
        self.transfers = OwnershipTransfers(core, queue_peers.is_reachable, self._initial_owner)
        if self.is_shared:
            queue_peers.register_handler(self._subject, self._handle_peer_message)

    def first_owner(self, path: str) -> str:
        """Return the owner of a message that enters the queue; empty for this instance.

        Args:
            path: the instances that the message has passed through, as in the log.
        """
        if not self.is_shared or not (path or self._initial_owner):
            return ""
        return self.transfers.initial_owner(hops(path)[0].name if path else self._instance)

    def resolve_dual_owner(self, publishers: tuple[str, str]) -> str:
        """Return the name of the owner of a message that was published at two instances."""
        return max(
            self.transfers.initial_owner(publisher) or self._instance for publisher in publishers
        )

    def set_proxied(self, enabled: bool) -> None:
        """Start or stop acting for unreachable owners (AMPS User Guide, Proxied Transfer)."""
        self.transfers.is_proxy = enabled
        self._services.events.emit("1D-0027" if enabled else "1D-0028", queue=self._name)
        self._wake()

    # events of other instances

    def apply_remote_event(self, domain_event: DomainQueueEvent) -> None:
        """Apply an event that another instance has just recorded."""
        if self._is_relevant(domain_event):
            self._core.apply_remote_event(domain_event.event, self._services.now_us)

    def replay(self, domain_event: DomainQueueEvent, arrived_at: int | None) -> None:
        """Replay an event of the log.

        Args:
            domain_event: the event.
            arrived_at: the time at which it arrived from another instance; None if it is this
                instance's.
        """
        is_transfer = isinstance(domain_event.event, Transferred)
        if (
            self._is_relevant(domain_event)
            if arrived_at is not None
            else self.is_shared or not is_transfer
        ):
            self._core.replay(domain_event.event, arrived_at)

    def _is_relevant(self, domain_event: DomainQueueEvent) -> bool:
        if not self._accepts_remote_events or domain_event.domain != self.domain:
            return False
        return self.is_shared or not isinstance(domain_event.event, Transferred)

    def was_recorded(self, bookmark: PublisherSequence) -> bool:
        """Return True if a message cannot arrive any more; see `Queue`."""
        log = self._services.log
        client, sequence = bookmark
        if not self.is_shared:
            return log.has_reached(bookmark)
        if log.journal.last_sequence(client):
            return log.has_reached(bookmark) and not self.is_missing(bookmark)
        try:  # the identity counts in txids, perhaps of another instance: compare the entry
            entries = log.journal.replay(
                LogSpan(sequence - 1, last_txid=sequence), kinds=EVENTS
            ).read(1)
        except JournalUnreadableError:
            return False
        return bool(entries) and entries[0].client == client

    def is_missing(self, bookmark: PublisherSequence) -> bool:
        """Return True if a message may arrive through another instance; see `Queue`."""
        return self.is_shared and self._services.queue_peers.is_missing(bookmark)

    # messages between instances

    @property
    def next_deadline(self) -> int | None:
        """When `process_transfers` must be called even without an event; None for never."""
        return self.transfers.next_deadline if self.is_shared else None

    def process_transfers(self) -> bool:
        """Send requests and responses; return True if ownership has changed: deliver again."""
        if not self.is_shared:
            return False
        messages = self.transfers.process_transfers(self._services.now_us)
        has_changed = bool(self._core.lifecycle.events)
        for recipient, message in messages:
            self._queue_journal.when_durable(
                partial(
                    self._services.queue_peers.send_message,
                    recipient,
                    self._subject,
                    encode_peer_message(message),
                )
            )
        if messages or has_changed:
            self._queue_journal.write()
        return has_changed

    def _handle_peer_message(self, recipient: str, sender: str, body: bytes) -> None:
        """Handle a message of another instance; ignore it if this version cannot decode it."""
        try:
            message = decode_peer_message(body)
        except msgspec.MsgspecError:
            return
        if recipient == self._instance or (
            self.transfers.is_proxy and isinstance(message, TransferRequest)
        ):
            self.transfers.handle_peer_message(message, sender, self._services.now_us)
            self._wake()
