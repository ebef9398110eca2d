"""Replication: sends the log to other instances, receives theirs, and tracks acknowledgements.

This is the core: plain code that decides, without I/O, threads or a clock. Timestamps are passed
in, in microseconds since 1970, as in the journal. Entries travel in batches of columns (`columns`),
so that a decision is made once per column value, not once per entry.

Terms. A *source* sends, a *destination* receives; a *link* is one connection, and may carry both
directions. An *identity* stands for a publisher in bookmarks; an identity and a sequence number
name a message on all instances. A *cursor* is a destination's position in a source's log. It
belongs to a *stream*: that log, and the part of it that is replicated. An entry is *stored* when it
is on stable storage at a destination; it is *settled* when it is also on stable storage at the
instances that acknowledge to that destination. A *lane* is the set of entries that have arrived on
one path; entries of different lanes are acknowledged independently.

For integrators
---------------

Identity. A message has the same name on all instances: `JournalEntry.client` and `sequence`. For a
publisher that gives no sequence numbers, and for the events of queues, the server makes the
identity at the instance of the publish, and the txid there is the number; all instances keep both.
`source` of an entry is the hash of the name of the instance that sent it; `source_txid` is as in
the columns; the path in its origin names all instances that it has passed through. Its timestamp is
that of this instance; its lifetime is the rest that it had when it was sent.

Startup. Read `replication.ack` (`unpack`); it is void if its `log` is not that of the journal, or
if its `txid` is beyond the journal's end. Make a `RecentEntries`, and feed a `DedupWindowRecovery`
from the log (`EVENTS`, in batches), from the lowest of `txid` and `acknowledged` on, or as far as
`RecentEntries` reaches before `txid`; without the file, feed it the whole log. If journals behind
`txid` are gone, the log is not complete. The result is `recovery.dedup_window`; set its
`highest_sequence` to `Journal.last_sequence`. Make a `ReplicationSender` for each Destination, with
its value in `acknowledged`; a `ReplicationReceiver` for each instance that connects with a new
name, with its cursor if the file has one; and one `AcknowledgementTracker` over the senders. All of
these live as long as the instance. The identity of a log must change when the log is started anew.

Publishes of clients. Call `recent_entries.add_entry(...)` for appended entries. Where a numbered
message does not follow its publisher's highest number, call
`dedup_window.record_sequences(client, highest number before, sequences)`.

A link. Both ends send a `Hello`, and check the other's with `refusal`, by its credentials, by its
`description`, and for a destination with `group_refusal`; a reason is returned as `HelloRefusal`,
and both ends log it. Of two connections, `choose_connection` returns which to keep. Then call
`end_link()` of the sender and the receiver for that instance, since they may still be on a link
that is dropped; if there is a destination, send the return value of
`sender.begin_link(peer_of(hello))`. Frames:

    PositionRequest  -> send all frames of
                        `receiver.begin_link(peer, frame, ack_tracker.settled_txid)`
    PositionResponse -> `sender.resume(frame)`; DedupState -> `sender.process_dedup_state(frame)`;
                        both return `ResumePosition` when sending begins, with the range of missing
                        entries
    ReplicationBatch -> `receiver.receive_batch(frame)`; while `receiver.is_blocked`, read nothing
                        from that link, and retry `resume_batch()` periodically
    SkippedRanges    -> `receiver.record_skipped(frame)`
    Ack              -> `sender.process_ack(frame)`
    HeartbeatFrame   -> do nothing; an end that receives nothing for too long closes the link
    PeerMessage      -> `MeshRouter.receive_message`, which forwards it or returns its sender

`ReplicationFrameError` and `ReplicationProtocolError` end the link, and are logged. While the link
accepts more, send the return value of `sender.next_frame(now)`, until that is None; about once a
second call it with `flush`. Once per scheduling round of the engine, or at an interval of your own,
send the return value of `receiver.make_ack(durable_txid, ack_tracker.is_settled)`. When the link is
gone, call `end_link()` of both.

Acknowledgement. Call `ack_tracker.record_append(txid, now)` from time to time after appends, and
`advance_durable` when the journal's thread has synced. After that, and after acks, downgrades and
upgrades, call `update_settled`: if it returns true, release the waiters for `settled_txid`; there
may also be something to acknowledge. The refusal of a message as a duplicate must not be reported
before the end of the log at that moment is settled, too.

Damage. A sender stops in front of an entry that the log cannot read (`blocked_txid`); call
`retry_damaged` when that entry has been repaired, or is lost. Entries that it has skipped are in
`unreported_skipped`.

The state file. To store `replication.ack`, make a `PersistentState` of `receiver.cursor`,
`sender.first_needed_txid - 1` and `dedup_window.publisher_windows(...)`, with the last txid
appended; write it when that txid is on stable storage, and no sooner. The log is needed from
`sender.first_needed_txid` on.

Anti-entropy. The records that two instances have of a topic are compared by a `RecordComparison` at
one and a `ComparisonResponder` at the other; their messages travel beside the log, and may be
lost. See `server.replication.anti_entropy`.

Sources: AMPS User Guide, Replicating Messages Between Instances and the sections after it; High
Availability. Our own design: the protocol, gaps, resynchronization by difference, conflicts.
"""

from server.replication.core.acknowledgement import (
    AcknowledgementTracker,
    DestinationLag,
    EntryRoutingKey,
)
from server.replication.core.batch_counts import BatchCounts, DuplicateConflict
from server.replication.core.columns import (
    BatchColumns,
    ConstantColumn,
    EntryColumn,
    PackedBatch,
    ReplicationBatch,
    SharedProperties,
)
from server.replication.core.dedup_window import DedupWindow, PublisherWindow
from server.replication.core.entry_recorder import EntryRecorder, RecorderResult
from server.replication.core.frames import (
    MAX_FRAME_SIZE,
    MAX_FRAME_SIZE_BEFORE_HELLO,
    VERSION,
    Ack,
    DedupState,
    HeartbeatFrame,
    Hello,
    HelloRefusal,
    InboundFrame,
    OutboundFrame,
    PeerMessage,
    PositionRequest,
    PositionResponse,
    ReplicationFrameError,
    ReplicationFrameReader,
    ReplicationProtocolError,
    SkippedRanges,
    encode,
    encode_pieces,
)
from server.replication.core.handshake import (
    ConnectionChoice,
    PeerConnection,
    choose_connection,
    group_refusal,
    peer_of,
    refusal,
)
from server.replication.core.peer_instance import PeerInstance
from server.replication.core.persistent_state import (
    DedupWindowRecovery,
    PersistentState,
    pack,
    unpack,
)
from server.replication.core.receive_cursor import LogBranch, ReceiveCursor
from server.replication.core.receiver import ReplicationReceiver
from server.replication.core.recent_entries import RecentEntries
from server.replication.core.router import (
    MAX_PEER_MESSAGE_SIZE,
    MeshRouter,
    RoutedMessage,
    RoutingResult,
)
from server.replication.core.routes import Hop, RouteFilter, Routes, TopicRoute, append_hop, hops
from server.replication.core.sender import ReplicationSender, ResumePosition, SenderState
from server.replication.core.source_log import SourceLog, SourceLogReader

__all__ = [
    "MAX_FRAME_SIZE",
    "MAX_FRAME_SIZE_BEFORE_HELLO",
    "MAX_PEER_MESSAGE_SIZE",
    "VERSION",
    "Ack",
    "AcknowledgementTracker",
    "BatchColumns",
    "BatchCounts",
    "ConnectionChoice",
    "ConstantColumn",
    "DedupState",
    "DedupWindow",
    "DedupWindowRecovery",
    "DestinationLag",
    "DuplicateConflict",
    "EntryColumn",
    "EntryRecorder",
    "EntryRoutingKey",
    "HeartbeatFrame",
    "Hello",
    "HelloRefusal",
    "Hop",
    "InboundFrame",
    "LogBranch",
    "MeshRouter",
    "OutboundFrame",
    "PackedBatch",
    "PeerConnection",
    "PeerInstance",
    "PeerMessage",
    "PersistentState",
    "PositionRequest",
    "PositionResponse",
    "PublisherWindow",
    "ReceiveCursor",
    "RecentEntries",
    "RecorderResult",
    "ReplicationBatch",
    "ReplicationFrameError",
    "ReplicationFrameReader",
    "ReplicationProtocolError",
    "ReplicationReceiver",
    "ReplicationSender",
    "ResumePosition",
    "RouteFilter",
    "RoutedMessage",
    "Routes",
    "RoutingResult",
    "SenderState",
    "SharedProperties",
    "SkippedRanges",
    "SourceLog",
    "SourceLogReader",
    "TopicRoute",
    "append_hop",
    "choose_connection",
    "encode",
    "encode_pieces",
    "group_refusal",
    "hops",
    "pack",
    "peer_of",
    "refusal",
    "unpack",
]
