"""Replication: what goes to other instances, what comes from them, and what waits for that.

This is the core: plain code that decides, without I/O, threads or a clock. Moments are passed in,
in microseconds since 1970, as in the journal. Entries travel in batches of runs of columns
(`columns`): what is common to many is decided once.

Words. A *source* sends, a *destination* receives; a *link* is one connection, and may carry both
directions. An *identity* stands for a publisher in bookmarks; an identity and a number name a
message on all instances. A *cursor* is a destination's place in a source's log, and belongs to a
*stream*: to that log, and to what is replicated of it. *Stored* is what is on stable storage at a
destination; *settled* is what is so, too, at the instances that acknowledge to it.
"""

from server.replication.acknowledgement import Acknowledgement, Progress, Waiting
from server.replication.columns import Batch, Column, Columns, Same
from server.replication.digests import Digests
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
    Refused,
    Resume,
    encode,
)
from server.replication.handshake import group_refusal, peer_of, prefers, refusal
from server.replication.known import Had, Known
from server.replication.receiver import Conflict, Cursor, Receiver, Recorded, Recorder, Taken
from server.replication.routes import Filter, Hop, Routes, TopicRoute, hops, lengthen
from server.replication.sender import Peer, ProtocolError, Reader, Resumed, Sender, SourceLog, State
from server.replication.state import Recollection, Remembered, pack, unpack

__all__ = [
    "MOST_BEFORE_HELLO",
    "MOST_IN_FRAME",
    "VERSION",
    "Ack",
    "Acknowledgement",
    "Batch",
    "Beat",
    "Begin",
    "Column",
    "Columns",
    "Conflict",
    "Cursor",
    "Digests",
    "Filter",
    "Frame",
    "FrameError",
    "FrameReader",
    "Had",
    "Hello",
    "Hop",
    "Knowledge",
    "Known",
    "Peer",
    "Progress",
    "ProtocolError",
    "Reader",
    "Receiver",
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
    "SourceLog",
    "State",
    "Taken",
    "TopicRoute",
    "Waiting",
    "encode",
    "group_refusal",
    "hops",
    "lengthen",
    "pack",
    "peer_of",
    "prefers",
    "refusal",
    "unpack",
]
