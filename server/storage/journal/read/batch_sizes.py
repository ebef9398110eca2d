"""Txids and sizes of the entries in a part of the log, without bodies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.layout import BODY_LENGTH, TIMESTAMP, TXID

if TYPE_CHECKING:
    from server.storage.journal.format.layout import EntryRow

TxidArray = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class EntrySizes:
    """Txids and sizes of some entries in order.

    Attributes:
        txids: their txids.
        sizes: the lengths of their bodies in bytes.
        first_timestamp: time of the first entry, in microseconds since the Unix epoch.
    """

    txids: TxidArray
    sizes: TxidArray
    first_timestamp: int

    def __len__(self) -> int:
        return len(self.txids)


def make_entry_sizes(rows: Iterable[EntryRow]) -> EntrySizes:
    """Return txids and sizes of entries that have been read one by one."""
    fields = [(row[TXID], row[BODY_LENGTH], row[TIMESTAMP]) for row in rows]
    txids, sizes, _ = np.array(fields, np.int64).reshape(-1, 3).T
    return EntrySizes(txids, sizes, fields[0][2] if fields else 0)


NO_ENTRY_SIZES: Final = make_entry_sizes(())
"""No entries."""
