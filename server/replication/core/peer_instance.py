"""The instance at the other end of a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PeerInstance(NamedTuple):
    """The instance at the other end, as its `Hello` describes it.

    Attributes:
        name: its Name.
        group: its Group.
        log: identity of its transaction log.
        log_start_txid: the first txid that this log ever had.
        runs: the first txid and the number of each run that has recorded entries of it; empty if
            the peer does not send them.
    """

    name: str
    group: str
    log: str
    log_start_txid: int
    runs: Sequence[tuple[int, int]] = ()
