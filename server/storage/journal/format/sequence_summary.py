"""The sequence ranges of publishers, computed from the records of many entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.entry import EVENTS

_IS_EVENT: Final = np.isin(np.arange(256), sorted(EVENTS))
"""By kind, whether entries of that kind are events."""


class ClientSequenceRange(NamedTuple):
    """The sequence range of one publisher that numbers its messages.

    Attributes:
        client: its client hash.
        first: the lowest of its numbers.
        last: the highest.
        time: time of the last entry, in microseconds since the Unix epoch.
    """

    client: int
    first: int
    last: int
    time: int


def numbered(records: npt.NDArray[np.void]) -> Iterator[ClientSequenceRange]:
    """Yield the sequence range of each publisher of some entries.

    Args:
        records: their records, of `RECORD_TYPE`. Columns are far cheaper than whole records.
    """
    # A number from another instance may happen to be the txid that its entry has here.
    mask = (records["sequence"] != records["txid"]) | (records["source"] != 0)
    mask &= _IS_EVENT[records["kind"]]
    clients = records["client"][mask]
    if not len(clients):
        return
    sequences, times = records["sequence"][mask], records["timestamp"][mask]
    if (clients == clients[0]).all():
        publishers, begins = clients[:1], np.zeros(1, np.intp)
    else:
        order = np.argsort(clients, kind="stable")
        sequences, times = sequences[order], times[order]
        publishers, begins = np.unique(clients[order], return_index=True)
    yield from map(
        ClientSequenceRange,
        publishers.tolist(),
        np.minimum.reduceat(sequences, begins).tolist(),
        np.maximum.reduceat(sequences, begins).tolist(),
        np.maximum.reduceat(times, begins).tolist(),
    )
