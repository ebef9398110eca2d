"""The runs of an instance, and the entries that each has recorded.

A run may have sent clients bookmarks of messages that never reached the disk, and a log restored
from a backup has lost entries whose bookmarks clients have. Txids alone would be used a second time
then. So each run has a random number, which is part of every bookmark that it makes: of the
identities of publishers without sequence numbers, and of the number that stands for the log.

The first entry that a run records in a file lists the runs so far, with their first txids
(`JournalEntryKind.RUNS`). A run that has recorded nothing leaves no trace, and its bookmarks are
not found.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from amperage.wire.bookmarks import client_hash

MAX_RUNS: Final = 1000
"""Limit of runs; older ones are forgotten, and their bookmarks are not found any more."""

RUN_BITS: Final = 32
"""Number of lower bits of a server-made identity that hold the number of the run."""

_RUN_MASK: Final = (1 << RUN_BITS) - 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[int, int]])


def random_run() -> int:
    """Return a random number for a run."""
    return secrets.randbits(RUN_BITS)


class RunHistory:
    """The known runs of a log, and the one that writes to it now.

    Args:
        rows: the first txid and the number of each earlier run, in order.
        make_number: returns the number of this run.

    Attributes:
        current: the number of this run.
    """

    def __init__(
        self,
        rows: Iterable[tuple[int, int]],
        make_number: Callable[[], int],
    ) -> None:
        self._rows = list(rows)
        known_numbers = {number for _, number in self._rows} | {0}
        while (current := make_number()) in known_numbers:
            pass
        self.current: Final = current

    def begin_run(self, first_txid: int) -> bytes:
        """Note that this run records entries from a txid on, unless it has begun before.

        Returns:
            The body of the entry that lists all runs.
        """
        if not self._rows or self._rows[-1][1] != self.current:
            self._rows = [*self._rows, (first_txid, self.current)][-MAX_RUNS:]
        return _ENCODER.encode(self._rows)

    def undo_begin(self, first_txid: int) -> None:
        """Undo `begin_run` if its entry could not be recorded."""
        if self._rows and self._rows[-1] == (first_txid, self.current):
            self._rows = self._rows[:-1]

    def rows(self) -> list[tuple[int, int]]:
        """Return the first txid and the number of each run, in order."""
        return list(self._rows)

    def rows_with_current(self, next_txid: int) -> list[tuple[int, int]]:
        """Return all runs with this one, which begins with `next_txid` if it has not begun."""
        has_begun = bool(self._rows) and self._rows[-1][1] == self.current
        return self.rows() if has_begun else [*self._rows, (next_txid, self.current)]

    def number_at(self, txid: int) -> int:
        """Return the number of the run that has recorded an entry; 0 before the first known one."""
        return run_at(self._rows, txid)

    def last_txid(self, number: int) -> int | None:
        """Return the last txid of an earlier run; None if the run is unknown or the current one."""
        rows = self._rows
        for (_, run), (following, _) in pairwise(rows):
            if run == number:
                return following - 1
        return None


def run_at(rows: Sequence[tuple[int, int]], txid: int) -> int:
    """Return the number of the run that has recorded an entry; 0 before the first of `rows`."""
    index = bisect_right(rows, (txid, 1 << RUN_BITS))
    return rows[index - 1][1] if index else 0


def has_recorded(rows: Sequence[tuple[int, int]], identity: int, txid: int) -> bool:
    """Return whether an instance has recorded a message under an identity that it has made.

    Args:
        rows: its runs; empty if it does not send them: then all its names count as recorded.
        identity: the identity in place of the publisher.
        txid: txid of the message.
    """
    run = run_at(rows, txid)
    return not run or run == run_of(identity)


def decode_runs(body: bytes) -> list[tuple[int, int]]:
    """Decode the body of an entry that lists runs.

    Raises:
        msgspec.MsgspecError: it is no such body.
    """
    return _DECODER.decode(body)


def run_of(identity: int) -> int:
    """Return the number of the run that has made an identity, if the server has made it."""
    return identity & _RUN_MASK


def log_run_hash(log: str, run: int) -> int:
    """Return the number that stands for a log and a run in bookmarks that name positions.

    Args:
        log: the name of the log.
        run: the number of the run; 0 for entries of versions that did not distinguish runs.
    """
    return client_hash(f"{log} {run}" if run else log)


class LogPositions:
    """The bookmarks that name positions in a log.

    The number of a run distinguishes logs of one instance, and every journal file has it. The name
    of the log may change when its first files are removed; it stands for entries without a run, and
    in bookmarks that others have made.

    Args:
        run_history: the runs that have written the log.
        instance: the name of the instance.
        log_name: the name that distinguishes the log from others.
    """

    def __init__(self, run_history: RunHistory, instance: str, log_name: str) -> None:
        self._run_history = run_history
        self._instance = instance
        self._log_name = log_name
        # The number of runs, and the run of each number: replaced together, for other threads.
        self._run_by_number: tuple[int, dict[int, int]] = (-1, {})

    def bookmark(self, txid: int) -> tuple[int, int]:
        """Return a bookmark that names a position in the log, up to an entry.

        Instead of a client hash it has a number for the log and for the run that has recorded the
        entry; instead of a sequence it has the txid.
        """
        run = self._run_history.number_at(txid)
        return log_run_hash(self._instance if run else self._log_name, run), txid

    def run_of(self, client: int) -> int | None:
        """Return the run of a bookmark with this first number; None if it names no position."""
        rows = self._run_history.rows()
        count, run_by_number = self._run_by_number
        if count != len(rows):
            run_by_number = {log_run_hash(self._log_name, 0): 0}
            for name in (self._log_name, self._instance):
                run_by_number |= {log_run_hash(name, run): run for _, run in rows}
            self._run_by_number = len(rows), run_by_number
        return run_by_number.get(client)

    def last_common_txid(self, client: int, sequence: int) -> int | None:
        """Return the last entry that the log shares with a reader that names a lost entry.

        An earlier run of the instance has given the name, and the log has entries of that run, but
        not this one: it was never on stable storage, or the log has been restored from a backup.

        Args:
            client: the first number of the bookmark.
            sequence: the second one, a txid of that run.

        Returns:
            The txid; None if the name does not belong to such a run.
        """
        run = self.run_of(client)
        last_txid = self._run_history.last_txid(run_of(client) if run is None else run)
        return last_txid if last_txid is not None and last_txid < sequence else None
