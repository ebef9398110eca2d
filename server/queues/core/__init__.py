"""Queues: competing consumers over the transaction log.

This package is the core of queues: it decides, without I/O, sessions or a clock. Bodies stay in the
journal; the core identifies messages by their txids and bookmarks, and reads bodies only through
the `FilterMatcher` that it is given. Timestamps are arguments, in microseconds since 1970, as in
the journal.

Terms. A message that enters a queue gets a *offset*, its number in the queue. A *bookmark* is a
`PublisherSequence` here: two numbers. A *consumer* is a subscription, with one backlog over all
queues that it matches; its *slot* is its state in one queue. A *lease* assigns messages to a
consumer until a deadline. A *source* supplies consumers that have the same filter, a *scan* finds
messages for sources. A *barrier* blocks the messages after it until all messages before it have
left the queue.

Integration
-----------

    queue = Queue(settings_of(spec), make_matcher, owner=instance_name)

Messages. When entries of an underlying topic are applied (in log order, once stored), and their
bodies match the queue's Filter, `queue.lifecycle.enqueue(txids, times, client, sequences, details)`
appends a batch of one publisher. Pass `details` only if there are any: a queue without expressions
gets none, and no body is parsed. Cache recent bodies by txid, and read the others from the journal.

Consumers. Create a `Consumer(name, client, requested_backlog)` per subscription, and call
`queue.attach(consumer, filter)` for every queue that it matches; after that, `consumer.max_backlog`
is the effective backlog for the ack. When a subscription is replaced:
`consumer.set_requested_backlog(n)`, and `attach` again with the new filter (leases stay); `retire`
at queues that the new topic does not match. `detach` on unsubscribe and disconnect. A filter is any
hashable value that `FilterMatcher` understands, equal for equal filters; filters that differ by
user (entitlement) must not be equal. A `FilterMatcher` is created per scan: a `FilterSet` does it.

Delivery. After every possible change, and at `queue.next_deadline`, call
`Queue.assign_messages(now)`, once per scheduling round of the engine rather than once per message.
Each delivery that it returns batches many messages. While `queue.is_behind`, call again soon,
between other work. When `FilterMatcher` raises `UnmatchedError`, nothing is lost and
`queue.is_unreadable`: retry later.

Acknowledgements. `parse_bookmarks` reads a list of bookmarks, `queue.acknowledge(bookmarks, now,
client, outcome, delay)` applies it. For acknowledgements by key or filter, find the offsets
(`inspection`) and call `acknowledge_offsets`. `extend_leases` prolongs leases. The result lists
refusals with their reasons.

The journal. After every call that may change state, record the events of `queue.drain_events()`, in
that order and before any later event; `encode(event)` is the body. Under at-most-once, no message
that `deliver` returned may be sent before its `Sent` event is stored; likewise a `persisted` ack
for an acknowledgement waits for its event. For each message, an `Expired` event has the data that
actions and dead letters need. Recovery: `restore_early_acks`, `lifecycle.enqueue` and `replay`
entries in log order from `oldest_txid` on, `finish_recovery(now)`. Leases end with the process: all
messages that were not acknowledged are delivered again.

TargetQueueDepth. While `lifecycle.refill_count` is not 0, read that many messages of the queue from
the log, from `lifecycle.resume_txid` on, and pass them to `lifecycle.enqueue_inactive`.

Between instances. If several instances share a queue, each of them has all messages, and delivers
those that it owns. See `ownership_transfer`, which requests messages from other instances, and
transfers messages to them.

Sources: AMPS User Guide, Message Queues; Configuring Queues in a SOW. Our extensions: order per
key, delays of cancelled messages, counts that survive restarts, extension of leases.
"""

from typing import TYPE_CHECKING

from server.queues.core.acknowledgement import AckOutcome, AckResult
from server.queues.core.bookmark_index import parse_bookmarks
from server.queues.core.consumers import Consumer
from server.queues.core.counts import QueueCounters
from server.queues.core.details import MessageDetails
from server.queues.core.events import (
    Acked,
    Cancelled,
    Deferred,
    DomainQueueEvent,
    Expired,
    Leased,
    PublisherSequence,
    QueueEvent,
    Released,
    RemovalDetails,
    Sent,
    Transferred,
    decode,
    decode_with_domain,
    encode,
)
from server.queues.core.ownership_transfer import OutboundPeerMessage, OwnershipTransfers
from server.queues.core.peer_messages import (
    MAX_REQUESTED_MESSAGES,
    QueuePeerMessage,
    TransferRequest,
    TransferResponse,
    decode_peer_message,
    encode_peer_message,
)
from server.queues.core.queue import Queue, QueueDelivery
from server.queues.core.settings import QueueSettings, settings_of
from server.queues.core.sources import FilterMatcher, UnmatchedError

if TYPE_CHECKING:
    from server.queues.topic.browser import QueueBrowser

__all__ = [
    "MAX_REQUESTED_MESSAGES",
    "AckOutcome",
    "AckResult",
    "Acked",
    "Cancelled",
    "Consumer",
    "Deferred",
    "DomainQueueEvent",
    "Expired",
    "FilterMatcher",
    "Leased",
    "MessageDetails",
    "OutboundPeerMessage",
    "OwnershipTransfers",
    "PublisherSequence",
    "Queue",
    "QueueBrowser",
    "QueueCounters",
    "QueueDelivery",
    "QueueEvent",
    "QueuePeerMessage",
    "QueueSettings",
    "Released",
    "RemovalDetails",
    "Sent",
    "TransferRequest",
    "TransferResponse",
    "Transferred",
    "UnmatchedError",
    "decode",
    "decode_peer_message",
    "decode_with_domain",
    "encode",
    "encode_peer_message",
    "parse_bookmarks",
    "settings_of",
]
