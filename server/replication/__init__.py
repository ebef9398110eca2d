"""Replication: what goes to other instances, what comes from them, and what waits for that.

This is the core: plain code that decides, without I/O, threads or a clock. Moments are passed in,
in microseconds since 1970, as in the journal. Entries travel in batches of columns (`columns`):
what is common to many is decided once.

Words. A *source* sends, a *destination* receives; a *link* is one connection, and may carry both
directions. An *identity* stands for a publisher in bookmarks; an identity and a number name a
message on all instances. A *cursor* is a destination's place in a source's log, and belongs to a
*stream*: to that log, and to what is replicated of it. *Stored* is what is on stable storage at a
destination; *settled* is what is so, too, at the instances that acknowledge to it.

For whoever integrates it
-------------------------

Identity. What names a message elsewhere is what names it here: `Entry.client` and `sequence`. A
publisher that gives no numbers, and the events of queues, have the identity that the server made
where they were published, and the txid there as number; both are kept by all instances. `source` of
an entry is the hash of the name of the instance that sent it, `source_txid` as in the columns, and
the path in its origin names all instances that it has been through. Its time is that of this
instance; its lifetime is what was left of it when it was sent.

At the start. Read `replication.ack` (`unpack`); it is void if its `log` is not that of the journal,
or its `txid` is beyond the journal's end. Make a `Recent`, and let a `Recollection` take the log
(`EVENTS`, in runs) from the lowest of `txid` and `acknowledged` on, or as far as `Recent` reaches
before `txid`; without the file, all of it. If journals behind `txid` are gone, it is not whole.
Then `known = recollection.known`, and `known.highest` is to be `Journal.last_sequence`. Make a
`Sender` for each Destination, with what is in `acknowledged`; for each instance that connects with
a name not seen before, a `Receiver`, with its cursor if one was remembered; and one
`Acknowledgement` over the senders. All of these live as long as the instance. The identity of a log
must change when the log is begun anew.

Publishes of clients. `recent.note(...)` for what is appended, and where a numbered message does not
follow on its publisher's highest number, `known.noted(client, highest before, sequences)`.

A link. Both ends send a `Hello`, and judge the other's with `refusal`, by its credentials, its
`description`, and for a destination with `group_refusal`; a reason goes back as `Refused`, and both
log it. Of two connections, `which_stays` says which do. Then `disconnected()` of the sender and the
receiver for that instance, which may still be on a link that does not stay; if there is a
destination, send what `sender.connected(peer_of(hello))` returns. Frames:

    Begin       -> send all that `receiver.begin(peer, frame, acknowledgement.settled)` gives
    Resume      -> `sender.resume(frame)`; Knowledge -> `sender.learn(frame)`; both tell (`Resumed`)
                   when sending begins, and what is missing
    Batch       -> `receiver.take(frame)`; while `receiver.is_stalled` read nothing from that link,
                   and call `go_on()` now and then
    Owed        -> `receiver.owe(frame)`
    Ack         -> `sender.acknowledge(frame)`
    Beat        -> nothing; whoever hears nothing for too long closes the link

    Word        -> `Courier.receive`, which passes it on or tells who says something; see there

`FrameError` and `ProtocolError` end the link, and are logged. While the link takes more, send what
`sender.pull(now)` returns, until that is None; about once a second with `flush`. Once a turn of the
engine, or in a rhythm of your own, send what `receiver.acknowledge(durable,
acknowledgement.is_settled)` returns. When the link is gone: `disconnected()` of both.

Acknowledgement. `recorded(txid, now)` when something has been appended, now and then; `reached`
when the journal's thread has synced; after that, and after acks, downgrades and upgrades,
`find_out`: if it returns true, whoever waits for `settled` goes on, and there may be something to
acknowledge. That a message is refused as a duplicate must not be told before the end of the log
at that moment is settled, too.

Damage. A sender waits in front of what the log cannot read (`blocked`); call `look_again` when that
has been mended, or is lost. What it has left out it says in `left_out`.

The record. To store `replication.ack`: make a `Remembered` of `receiver.cursor`,
`sender.needed_from - 1` and `known.summary(...)`, with the last txid appended; write it when that
is on stable storage, and no sooner. The log is needed from `sender.needed_from` on.

Comparing. What two instances show of a topic with records is compared by a `Comparison` at one and
an `Answering` at the other; their words travel beside the log, and may be lost. See `comparison`.

Sources: AMPS User Guide, Replicating Messages Between Instances and what follows it; High
Availability. What is ours: the protocol, gaps, resynchronization by difference, conflicts.
"""

from server.replication.acknowledgement import Acknowledgement, Kept, Progress, Waiting
from server.replication.columns import Batch, Column, Columns, Name, Packed, Same
from server.replication.courier import MOST_IN_WORD, Courier, Parcel, Received
from server.replication.frames import (
    MOST_BEFORE_HELLO,
    MOST_IN_FRAME,
    VERSION,
    Ack,
    Beat,
    Begin,
    Frame,
    FrameError,
    FrameReader,
    Hello,
    Knowledge,
    Owed,
    Refused,
    Resume,
    Sent,
    Word,
    encode,
    encoded,
)
from server.replication.handshake import (
    Connection,
    Stay,
    group_refusal,
    peer_of,
    refusal,
    which_stays,
)
from server.replication.known import Had, Known
from server.replication.receiver import (
    Branch,
    Conflict,
    Cursor,
    Receiver,
    Recorded,
    Recorder,
    Taken,
)
from server.replication.recent import Recent
from server.replication.routes import Filter, Hop, Routes, TopicRoute, hops, lengthen
from server.replication.sender import Peer, ProtocolError, Reader, Resumed, Sender, SourceLog, State
from server.replication.state import Recollection, Remembered, pack, unpack

__all__ = [
    "MOST_BEFORE_HELLO",
    "MOST_IN_FRAME",
    "MOST_IN_WORD",
    "VERSION",
    "Ack",
    "Acknowledgement",
    "Batch",
    "Beat",
    "Begin",
    "Branch",
    "Column",
    "Columns",
    "Conflict",
    "Connection",
    "Courier",
    "Cursor",
    "Filter",
    "Frame",
    "FrameError",
    "FrameReader",
    "Had",
    "Hello",
    "Hop",
    "Kept",
    "Knowledge",
    "Known",
    "Name",
    "Owed",
    "Packed",
    "Parcel",
    "Peer",
    "Progress",
    "ProtocolError",
    "Reader",
    "Received",
    "Receiver",
    "Recent",
    "Recollection",
    "Recorded",
    "Recorder",
    "Refused",
    "Remembered",
    "Resume",
    "Resumed",
    "Routes",
    "Same",
    "Sender",
    "Sent",
    "SourceLog",
    "State",
    "Stay",
    "Taken",
    "TopicRoute",
    "Waiting",
    "Word",
    "encode",
    "encoded",
    "group_refusal",
    "hops",
    "lengthen",
    "pack",
    "peer_of",
    "refusal",
    "unpack",
    "which_stays",
]
