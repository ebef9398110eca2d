"""Queues: competing consumers over the transaction log.

This is the core: plain code that decides, without I/O, sessions or a clock. Bodies stay in the
journal; the core knows messages by their txids and bookmarks, and asks for bodies only through the
`Matching` that it is given. Moments are passed in, in microseconds since 1970, as in the journal.

Words. A message that enters a queue gets a *place*, which is its number in the queue. A *mark* is a
bookmark as two numbers. A *consumer* is a subscription, with one backlog over all queues that it
matches; its *seat* is its part in one queue. A *lease* gives a consumer messages until a moment.
A *source* is what consumers with the same filter are fed from, a *scan* is what finds messages for
sources. A *barrier* holds up what is behind it until what is before it has left.

For whoever integrates it
-------------------------

    queue = Queue(settings_of(spec), matching=make_matching, owner=instance_name)

Messages. When entries of an underlying topic are applied (in the order of the log, when stored),
and their bodies match the queue's Filter, `queue.ledger.enqueue(txids, times, client, sequences,
details)` takes in a run of one publisher. `details` only where there is something to say: a queue
without expressions is given none, and no body is parsed. Keep bodies by txid in a cache of recent
ones, and read others from the journal.

Consumers. `Consumer(name, client, requested)` per subscription, `queue.attach(consumer, filter)`
for every queue that it matches; then `consumer.limit` is the effective backlog for the ack. When a
subscription is replaced: `consumer.request(n)` and `attach` again with the new filter (leases
stay), `retire` at queues that the new topic leaves out. `detach` on unsubscribe and disconnect. A
filter is any hashable value that `Matching` understands, equal for equal filters; one that differs
by user (entitlement) must not be equal. `Matching` is made per scan: a `FilterSet` does it.

Delivery. After anything that could change something, and at `queue.next_moment`, call
`queue.deliver(now)`, once per turn of the engine rather than once per message. What it returns has
many messages in each delivery. While `queue.is_behind`, call again soon, between other work. When
`Matching` raises `UnmatchedError`, nothing is lost and `queue.is_stalled`: call again later.

Acknowledgements. `parse_marks` reads a list of bookmarks, `queue.acknowledge(marks, now, client,
way, delay)` applies it; by key or filter: find the places (`inspection`) and `acknowledge_places`.
`extend` prolongs leases. The result says what was refused, and why.

The record. After every call that may change something, `queue.take_events()` is what the journal
has to record, in that order and before anything that happens later: `encode(event)` is the body.
Under at-most-once, nothing that `deliver` returned may be sent before its `Sent` event is stored;
a `persisted` ack for an acknowledgement waits for its event, too. An `Expired` event has for each
message what actions and dead letters need. Recovery: `restore_deferred`, `ledger.enqueue` and
`replay` entries in the order of the log from `oldest_txid` on, `finish_recovery(now)`. Leases end
with the process: everything that was not acknowledged is delivered again.

TargetQueueDepth. While `queue.ledger.wanted`, read that many messages of the queue from the log,
from `ledger.resume_txid` on, and let `ledger.admit` take them in.

Between instances. Of a queue that several instances have, each has all messages, and delivers those
that it owns: see `sharing`, which asks for others, and hands them on.

Sources: AMPS User Guide, Message Queues; Configuring Queues in a SOW. What is ours: order per key,
delays of cancelled messages, counts that survive restarts, extension of leases.
"""

from server.queues.acknowledging import AckResult, Way
from server.queues.consumers import Consumer
from server.queues.counts import Counters
from server.queues.details import Details
from server.queues.events import (
    Acked,
    Cancelled,
    Deferred,
    Departure,
    Event,
    Expired,
    Leased,
    Mark,
    Released,
    Sent,
    Transferred,
    Within,
    decode,
    decode_within,
    encode,
)
from server.queues.ledger import Watcher
from server.queues.marks import parse_marks
from server.queues.queue import Delivery, Queue
from server.queues.settings import QueueSettings, settings_of
from server.queues.sharing import Said, Sharing
from server.queues.sources import Matching, UnmatchedError
from server.queues.words import MOST_ASKED, Answer, Ask, Word, decode_word, encode_word

__all__ = [
    "MOST_ASKED",
    "AckResult",
    "Acked",
    "Answer",
    "Ask",
    "Cancelled",
    "Consumer",
    "Counters",
    "Deferred",
    "Delivery",
    "Departure",
    "Details",
    "Event",
    "Expired",
    "Leased",
    "Mark",
    "Matching",
    "Queue",
    "QueueSettings",
    "Released",
    "Said",
    "Sent",
    "Sharing",
    "Transferred",
    "UnmatchedError",
    "Watcher",
    "Way",
    "Within",
    "Word",
    "decode",
    "decode_within",
    "decode_word",
    "encode",
    "encode_word",
    "parse_marks",
    "settings_of",
]
