"""The transaction log: all published messages of recorded topics, in order, on stable storage.

Its use, and the whole public interface:

    journal = Journal(JournalSettings("AMPS-1", Path("journal")), clock, on_durable, notice)
    for entry in journal.entries(after=txid_of_last_snapshot):   # rebuild state; then
        apply(entry)
    journal.start()                                              # threads for commits and files

    topic = journal.topic("json", "orders")                      # keep the handle
    if sequence and sequence <= journal.last_sequence(client):
        ...                                                      # a duplicate
    txid = journal.append(topic, client, sequence, body)         # JournalUnavailable: a reason
    ...                                                          # on_durable(txid), on a thread

    request = parse_bookmark("[20260101T000000:934814|44321|)")  # BookmarkError: a reason
    cursor = journal.replay(journal.resolve(request, "now"), wanted=matcher)
    while not cursor.is_caught_up:
        send(cursor.read(256))                                   # a slice, at the reader's pace
    ...                                                          # live from cursor.position + 1

    journal.archive(3); journal.compress(2); journal.remove(0)   # for actions, on other threads
    journal.close()

Threads: `append`, `topic`, `origin` and `last_sequence` belong to the engine's thread. Cursors,
`find`, `first_since` and `resolve` may be used on any thread, one at a time each. `on_durable` and
`notice` are called on the journal's own threads, and must only notify other threads.

The modules, from the bytes up: layout (records and pages), records (reading them), extent (the end
of the log after a crash), index and clients (files beside the journals), storage and naming (file
I/O and names), files (the table of files), belonging (detection of foreign files); batches, writer,
committer (appending), upkeep (files made and sealed), filing (files moved, compressed, removed),
missing (sequence gaps that publishers are told), runs (of the instance, in bookmarks), bookmarks,
lookup, cursor and stretch (replay), mending and restoring (repair of damage), cutting, recovery,
journal (the whole log); inspection and times (single files, for tools).
The format is described in docs/formats/journal.md.
"""

from server.storage.journal.errors import (
    EntryTooLargeError,
    JournalEvent,
    JournalError,
    JournalUnavailableError,
    JournalUnreadableError,
    JournalNotice,
)
from server.storage.journal.format.entry import EVENTS, MESSAGES, JournalEntry, JournalEntryKind, JournalOrigin, JournalTopic
from server.storage.journal.journal import Journal
from server.storage.journal.read.batch_sizes import EntrySizes
from server.storage.journal.read.bookmarks import (
    BookmarkError,
    BookmarkRequest,
    MissingBookmarkPolicy,
    LogSpan,
    parse_bookmark,
)
from server.storage.journal.read.cursor import JournalCursor
from server.storage.journal.read.entry_batch import EntryBatch, EntryRange
from server.storage.journal.read.raw_batch import RawEntryBatch, RawEntryRange, DamagedEntry
from server.storage.journal.repair.body_repair import DamagedBody, JournalBodyRepair
from server.storage.journal.repair.record_repair import ReplacementEntry, RecordGap
from server.storage.journal.sequence_gaps import SequenceGaps, GapRecord, decode_note, encode_note
from server.storage.journal.settings import JournalSettings
from server.storage.journal.storage import Disk
from server.storage.journal.write.blocks import AppendResult, EntryColumns, FieldColumn, each, of_one
from server.storage.journal.write.handles import Handles, OriginHandle, TopicHandle

__all__ = [
    "EVENTS",
    "MESSAGES",
    "ReplacementEntry",
    "AppendResult",
    "BookmarkError",
    "BookmarkRequest",
    "EntryColumns",
    "JournalCursor",
    "DamagedBody",
    "Disk",
    "JournalEntry",
    "EntryTooLargeError",
    "JournalEvent",
    "FieldColumn",
    "RecordGap",
    "Handles",
    "Journal",
    "JournalError",
    "JournalSettings",
    "JournalUnavailableError",
    "JournalUnreadableError",
    "JournalEntryKind",
    "EntrySizes",
    "JournalBodyRepair",
    "SequenceGaps",
    "MissingBookmarkPolicy",
    "GapRecord",
    "JournalNotice",
    "JournalOrigin",
    "OriginHandle",
    "RawEntryBatch",
    "RawEntryRange",
    "EntryBatch",
    "LogSpan",
    "EntryRange",
    "JournalTopic",
    "TopicHandle",
    "DamagedEntry",
    "decode_note",
    "each",
    "encode_note",
    "of_one",
    "parse_bookmark",
]
