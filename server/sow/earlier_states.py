"""What records were before their last changes, as far as their file still has it.

An entry that is superseded stays in the file until its slab is cleaned, and slabs are cleaned in
the order of the log. So of the entries about a record, the file has those from some point on, and
the last one before a change that is to be undone says what the record was then. If the file has
none, it has been cleaned away, unless the log of the file still has its beginning: then there was
no record.
"""

from __future__ import annotations

from typing import Final

from server.sow import slab_format as form
from server.sow.slab_file import SlabFile
from server.sow.slab_format import ENTRY, Kind
from server.sow.slab_scan import scan
from server.sow.store import Earlier, identity_of

_GONE: Final = -1


def earlier_states(file: SlabFile, sequence: int, topic: str, *, pattern: bool) -> Earlier:
    """Look through a file for what the records were when a sequence was the last.

    Args:
        file: the file, to which nothing has been appended since it was opened.
        sequence: the last change that counts.
        topic: the topic that entries need not name.
        pattern: whether records of several topics are in the file.

    Raises:
        StoreError: the file has lost its content.
    """
    changed: set[str] = set()
    last: dict[str, int] = {}

    def note_changed(_: int, data: bytes) -> None:
        if _is_later(data, sequence):
            changed.add(identity_of(form.decode_record(data, topic), pattern=pattern))

    def note_earlier(location: int, data: bytes) -> None:
        kind = form.entry_kind(data)
        if kind in (Kind.RECORD, Kind.DELETED) and not _is_later(data, sequence):
            identity = identity_of(form.decode_record(data, topic), pattern=pattern)
            if identity in changed:
                last[identity] = location if kind == Kind.RECORD else _GONE

    links = scan(file, note_changed).links
    if changed:
        scan(file, note_earlier)
    has_beginning = bool(links) and links[0].header.previous == 0
    if has_beginning:
        last = dict.fromkeys(changed, _GONE) | last
    states = {
        identity: None if location == _GONE else form.decode_record(file.read(location), topic)
        for identity, location in last.items()
    }
    return Earlier(states, changed - last.keys())


def _is_later(data: bytes, sequence: int) -> bool:
    """Whether an entry says that a record was changed after a sequence, by an entry of the log."""
    _, _, _, kind, _, _, _, bookmarks, its_sequence, *_ = ENTRY.unpack_from(data)
    is_of_log = kind == Kind.DELETED or (kind == Kind.RECORD and bookmarks > 0)
    return bool(is_of_log and its_sequence > sequence)
