"""Whether records have the SOW keys that their topic makes of them now.

Queries find records by the fields of a `Key`, which give the SOW key. That holds as long as all
records got theirs so: not those that are from before the configuration's `Key` or `KeyDomain`
became another one, or the topic another name. So after a start, and a recovery from the log, the
keys are made again. That takes a third of the time that the start takes, so a file notes with which
keys it was found to be in order, and is not looked through again while these stay.

Where some records have other keys, all records are looked at, and nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from xxhash import xxh3_64_intdigest

from server.sow.keys import FieldKeys
from server.sow.topic import SowTopic

_AT_ONCE: Final = 1000
"""Records that are looked at between two calls of `pause`."""


def check_keys(sow: SowTopic, pause: Callable[[], None]) -> int:
    """See whether queries may find records by the fields of the topic's `Key`.

    Args:
        sow: a topic that has been recovered, and is not in use.
        pause: called now and then; what it raises ends the check.

    Returns:
        How many records have other SOW keys. If there are any, all are looked at from now on.
    """
    table, source = sow.table, sow.key_source(sow.name)
    if table.key_hash is None or not isinstance(source, FieldKeys):
        return 0
    mark = _mark_of(sow)
    if table.store.key_mark == mark:
        return 0
    strange = _strange(sow, source, pause)
    if strange:
        table.key_hash = None
    table.store.note_keys(0 if strange else mark)
    return strange


def _strange(sow: SowTopic, source: FieldKeys, pause: Callable[[], None]) -> int:
    store, found = sow.table.store, 0
    records = store.identities()
    while some := list(islice(records, _AT_ONCE)):
        keys = source.numbers(store.bodies([row for _, row in some]))
        found += sum(str(key) != has for key, (has, _) in zip(keys, some, strict=True))
        pause()
    return found


def _mark_of(sow: SowTopic) -> int:
    """What stands for the way in which a topic makes SOW keys; never 0."""
    options = sow.table.options
    said = repr((sow.type_name, options.key_domain, options.key_fields))
    return xxh3_64_intdigest(said.encode(errors="surrogatepass")) or 1
