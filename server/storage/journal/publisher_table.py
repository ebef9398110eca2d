"""The table of publishers with the highest sequence of each, for dedup of messages.

The table is a projection of the log. A cache of it (`.clients.ack`) is stored when a journal file
is full and when the instance closes, together with the txid up to which it is valid; later entries
are added from the log when the instance starts again.

Source: AMPS User Guide, Message Sequence Numbers; Reference to File Types.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from amperage.wire.bookmarks import client_hash
from server.storage.journal.format.layout import with_checksum
from server.storage.journal.format.side_files import check_side_file
from server.storage.journal.runs import RUN_BITS

MAGIC: Final = b"AMPGCACK"
VERSION: Final = 1

_HEADER: Final = struct.Struct("<8sHHIQQQ")
"""magic, version, reserved, number of missing ranges, txid, time, clients."""
_ROW: Final = np.dtype([("client", "<u8"), ("sequence", "<u8"), ("time", "<i8")])
_MISSING: Final = np.dtype([("client", "<u8"), ("first", "<u8"), ("last", "<u8")])

PublisherSequences = dict[int, tuple[int, int]]
"""Client hash -> (highest sequence, time of that entry in microseconds since the Unix epoch)."""


@lru_cache(maxsize=65_536)
def server_made_identity(client: int, instance: str, run: int = 0) -> int:
    """Return the client hash under which messages without a sequence number are recorded.

    It differs from the client's own hash, so that the server's numbers do not collide with numbers
    that the same client gives at other times. Its lower half is the number of the run, so that a
    reused txid does not name another message.

    Args:
        client: the client hash of the publisher.
        instance: name of the instance that records the message.
        run: the number of its run; 0 for entries of versions that did not distinguish runs.
    """
    identity = client_hash(f"{client}\0{instance}")
    return identity >> RUN_BITS << RUN_BITS | run if run else identity


def publisher_part(identity: int) -> int:
    """Return the part of a server-made identity that is the same in all runs of an instance."""
    return identity >> RUN_BITS


def is_server_made(identity: int, client: int, instance: str) -> bool:
    """Return whether any run of an instance may have made an identity for a publisher.

    Args:
        identity: the client field of an entry.
        client: the client hash of the publisher.
        instance: name of the instance.
    """
    return publisher_part(identity) == publisher_part(server_made_identity(client, instance))


@dataclass(frozen=True, slots=True)
class PublisherTable:
    """A stored table.

    Attributes:
        txid: txid of the last entry that it covers.
        sequences: the table.
        missing_ranges: ranges below these that are missing, or were reported as missing: client
            hash, and the first and the last number of each range; see
            `server.storage.journal.sequence_gaps`.
    """

    txid: int
    sequences: PublisherSequences
    missing_ranges: Collection[tuple[int, int, int]] = ()


def pack_clients(cache: PublisherTable, now: int) -> bytes:
    """Encode a table as the bytes of its file; `now` in microseconds since the Unix epoch."""
    rows = [(client, *known) for client, known in cache.sequences.items()]
    header = _HEADER.pack(MAGIC, VERSION, 0, len(cache.missing_ranges), cache.txid, now, len(rows))
    missing = np.array(list(cache.missing_ranges), _MISSING)
    return with_checksum(header + np.array(rows, _ROW).tobytes() + missing.tobytes())


def unpack_clients(data: bytes) -> PublisherTable:
    """Decode a stored table.

    Raises:
        JournalFormatError: it is damaged, or of another kind.
    """
    check_side_file(data, MAGIC, VERSION, _HEADER.size, "a clients.ack file")
    _, _, _, ranges, txid, _, count = _HEADER.unpack_from(data)
    rows = np.frombuffer(data, _ROW, count, _HEADER.size)
    missing = np.frombuffer(data, _MISSING, ranges, _HEADER.size + rows.nbytes).tolist()
    sequences = {client: (sequence, time) for client, sequence, time in rows.tolist()}
    return PublisherTable(txid, sequences, missing)


def without_inactive(sequences: Mapping[int, tuple[int, int]], since: int) -> PublisherSequences:
    """Return the table without publishers that have been inactive since a time.

    Args:
        sequences: the table.
        since: microseconds since the Unix epoch.
    """
    return {client: known for client, known in sequences.items() if known[1] >= since}
