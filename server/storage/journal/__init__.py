"""The transaction log: all published messages of recorded topics, in order, on stable storage.

Its use, and the whole public interface:

    journal = Journal(JournalSettings("AMPS-1", Path("journal")), clock, on_durable, notice)
    for entry in journal.entries(after=txid_of_last_snapshot):   # rebuild state; then
        apply(entry)
    journal.start()                                              # threads for commits and files

    topic = journal.topic("json", "orders")                      # keep the handle
    if sequence and sequence <= journal.last_sequence(client):
        ...                                                      # a duplicate
    txid = journal.append(topic, client, sequence, body)    # JournalUnavailableError: a reason
    ...                                                          # on_durable(txid), on a thread

    request = parse_bookmark("[20260101T000000:934814|44321|)")  # BookmarkError: a reason
    cursor = journal.replay(journal.resolve_bookmark(request, "now"), topic_predicate=matcher)
    while not cursor.is_caught_up:
        send(cursor.read(256))                                   # a slice, at the reader's pace
    ...                                                          # live from cursor.position + 1

    journal.archive(3); journal.compress(2); journal.remove(0)   # for actions, on other threads
    journal.close()

Threads: `append`, `topic`, `origin` and `last_sequence` belong to the engine's thread. Cursors,
`find`, `first_since` and `resolve_bookmark` may be used on any thread, one at a time each.
`on_durable` and `notice` are called on the journal's own threads, and must only notify other
threads.

The packages, from the bytes up: `format/` (records, pages, file names, files beside the journals),
`storage` and `files` (file I/O, the table of files), `log_end` (the end of the log after a crash),
`write/` (numbering, encoding, group commit, files made, sealed and archived), `sequence_gaps`
(missing numbers, to report to publishers), `runs` (of the instance, in bookmarks), `read/`
(bookmarks, lookup, cursors), `repair/` (damaged entries), `recovery/` (a start, foreign files),
`startup` (lock, clock steps, write position), `journal` (the whole log); `inspection` reads single
files, for tools.
The format is described in docs/formats/journal.md.
"""

from server.storage.journal.errors import (
    EntryTooLargeError,
    JournalError,
    JournalEvent,
    JournalNotice,
    JournalUnavailableError,
    JournalUnreadableError,
)
from server.storage.journal.format.entry import (
    EVENTS,
    MESSAGES,
    JournalEntry,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
)
from server.storage.journal.journal import Journal
from server.storage.journal.read.batch_sizes import EntrySizes
from server.storage.journal.read.bookmarks import (
    BookmarkError,
    BookmarkRequest,
    LogSpan,
    MissingBookmarkPolicy,
    parse_bookmark,
)
from server.storage.journal.read.cursor import JournalCursor
from server.storage.journal.read.entry_batch import EntryBatch, EntryRange
from server.storage.journal.read.raw_batch import DamagedEntry, RawEntryBatch, RawEntryRange
from server.storage.journal.repair.body_repair import DamagedBody, JournalBodyRepair
from server.storage.journal.repair.record_repair import RecordGap, ReplacementEntry
from server.storage.journal.sequence_gaps import GapRecord, SequenceGaps, decode_note, encode_note
from server.storage.journal.settings import JournalSettings
from server.storage.journal.storage import Disk
from server.storage.journal.write.blocks import (
    AppendResult,
    EntryColumns,
    FieldColumn,
    each,
    of_one,
)
from server.storage.journal.write.handles import Handles, OriginHandle, TopicHandle

__all__ = [
    "EVENTS",
    "MESSAGES",
    "AppendResult",
    "BookmarkError",
    "BookmarkRequest",
    "DamagedBody",
    "DamagedEntry",
    "Disk",
    "EntryBatch",
    "EntryColumns",
    "EntryRange",
    "EntrySizes",
    "EntryTooLargeError",
    "FieldColumn",
    "GapRecord",
    "Handles",
    "Journal",
    "JournalBodyRepair",
    "JournalCursor",
    "JournalEntry",
    "JournalEntryKind",
    "JournalError",
    "JournalEvent",
    "JournalNotice",
    "JournalOrigin",
    "JournalSettings",
    "JournalTopic",
    "JournalUnavailableError",
    "JournalUnreadableError",
    "LogSpan",
    "MissingBookmarkPolicy",
    "OriginHandle",
    "RawEntryBatch",
    "RawEntryRange",
    "RecordGap",
    "ReplacementEntry",
    "SequenceGaps",
    "TopicHandle",
    "decode_note",
    "each",
    "encode_note",
    "of_one",
    "parse_bookmark",
]
