"""Earlier states of records, as far as their file still has them.

A superseded entry stays in the file until its slab is cleaned, and slabs are cleaned in the order
of the log. So the file has all entries of a record from some point on, and the last one before a
change to be undone holds the record's earlier state. If the file has none, it has been cleaned
away, unless the log in the file still has its beginning: then there was no record.
"""

from __future__ import annotations

from typing import Final

from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.slab_file import SlabFile
from server.storage.sow.slab.slab_format import ENTRY, SlabEntryKind
from server.storage.sow.slab.slab_scan import scan
from server.storage.sow.store import PreviousVersions, identity_of

_GONE: Final = -1


def find_previous_versions(
    file: SlabFile, sequence: int, topic: str, *, pattern: bool
) -> PreviousVersions:
    """Search a file for the states that the records had at a sequence.

    Args:
        file: the file, before anything has been appended to it since it was opened.
        sequence: the last change to keep.
        topic: the topic that entries need not name.
        pattern: whether records of several topics are in the file.

    Raises:
        RecordStoreError: the file has lost its content.
    """
    changed: set[str] = set()
    last: dict[str, int] = {}

    def note_changed(_: int, data: bytes) -> None:
        if _is_later(data, sequence):
            changed.add(identity_of(form.decode_record(data, topic), pattern=pattern))

    def note_earlier(location: int, data: bytes) -> None:
        kind = form.entry_kind(data)
        if kind in (SlabEntryKind.RECORD, SlabEntryKind.DELETED) and not _is_later(data, sequence):
            identity = identity_of(form.decode_record(data, topic), pattern=pattern)
            if identity in changed:
                last[identity] = location if kind == SlabEntryKind.RECORD else _GONE

    extents = scan(file, note_changed).extents
    if changed:
        scan(file, note_earlier)
    has_beginning = bool(extents) and extents[0].header.previous_epoch == 0
    if has_beginning:
        last = dict.fromkeys(changed, _GONE) | last
    states = {
        identity: None if location == _GONE else form.decode_record(file.read(location), topic)
        for identity, location in last.items()
    }
    return PreviousVersions(states, changed - last.keys())


def _is_later(data: bytes, sequence: int) -> bool:
    """Return whether an entry of the log changed a record after a sequence."""
    _, _, _, kind, _, _, _, bookmarks, entry_sequence, *_ = ENTRY.unpack_from(data)
    is_of_log = kind == SlabEntryKind.DELETED or (kind == SlabEntryKind.RECORD and bookmarks > 0)
    return bool(is_of_log and entry_sequence > sequence)
