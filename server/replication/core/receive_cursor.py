"""Positions in the log of a source, and the branches of logs that make them void."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class ReceiveCursor(NamedTuple):
    """The position up to which a source's log has been received.

    Attributes:
        stream: the stream that it is a position in; see `PositionRequest`.
        txid: everything up to this is on stable storage here, and settled.
        owed: entries up to there that the source could not read; it sends them once it can.
        run: the number of the run of the source that has recorded the entry; None if the source
            does not send it.
    """

    stream: str
    txid: int
    owed: tuple[tuple[int, int], ...] = ()
    run: int | None = None


class LogBranch(NamedTuple):
    """The entries that are gone from the log of a source, or of its destination.

    Attributes:
        runs: the first txid and the number of each run of the source, in order; empty if it does
            not send them.
        has_lost_entries: whether the destination has lost entries that the source has got from it.
        own_runs: the runs of the destination.
    """

    runs: Sequence[tuple[int, int]] = ()
    has_lost_entries: bool = False
    own_runs: Sequence[tuple[int, int]] = ()


WHOLE_LOG: Final = LogBranch()


def log_of(stream: str) -> str:
    """Return the identity of the log that a stream belongs to; see `PositionRequest`."""
    return stream.rpartition("/")[0]
