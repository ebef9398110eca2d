"""Steps of the wall clock: the places in the log where it was set, and by how much.

An entry has the wall clock's time when it was recorded. The clock may be set, forward or back, so
these times need not ascend. To find a time in the log, the time of each entry is corrected by all
steps after it: it becomes the time that the clock would have shown had it been right before, and
the corrected times do ascend. Steps are kept in a file beside the journals (`.steps.ack`). Steps
after the last stored one are found in the times themselves: where these go back, there is a step
back of that much.

If the clock is set back by less than a second, times in the log do not change until it has caught
up.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.layout import JournalFormatError, with_checksum
from server.storage.journal.format.side_files import SidecarFile, check_side_file

MIN_STEP_US: Final = 1_000_000
"""Minimum of a step in microseconds; a smaller decrease of the time is no step."""

MAX_STEPS: Final = 4096
"""Limit of steps; beyond it the two oldest are merged."""

MAGIC: Final = b"AMPGSTEP"
VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sHI")  # magic, version, number of steps
_STEP: Final = struct.Struct("<Qq")


class ClockStep(NamedTuple):
    """A change of the wall clock by setting it.

    Attributes:
        txid: txid of the first entry after it.
        microseconds: amount of the change; negative for back.
    """

    txid: int
    microseconds: int


class ClockSteps:
    """The steps of one log, and the corrected times of its entries."""

    __slots__ = ("_corrections", "_steps", "_txids")

    def __init__(self, steps: Iterable[ClockStep] = ()) -> None:
        self._steps: list[ClockStep] = []
        self._txids: list[int] = []
        self._corrections: list[int] = []  # for the times of entries before each step
        for step in steps:
            self.add(step)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def all_steps(self) -> Sequence[ClockStep]:
        """All steps, in the order of the log."""
        return tuple(self._steps)

    @property
    def last_txid(self) -> int:
        """The txid of the first entry after the last step, 0 if there is none."""
        return self._txids[-1] if self._txids else 0

    def add(self, step: ClockStep) -> None:
        """Add a step after all others."""
        steps = self._steps
        if steps and steps[-1].txid == step.txid:
            step = ClockStep(step.txid, steps.pop().microseconds + step.microseconds)
        steps.append(step)
        if len(steps) > MAX_STEPS:
            steps[:2] = [ClockStep(steps[1].txid, steps[0].microseconds + steps[1].microseconds)]
        # Replaced, not modified: other threads look up times meanwhile.
        total, corrections = 0, []
        for other in reversed(steps):
            total += other.microseconds
            corrections.append(total)
        self._corrections = corrections[::-1]
        self._txids = [other.txid for other in steps]

    def drop_before(self, txid: int) -> None:
        """Forget the steps before an entry: the log begins with it."""
        remaining = [step for step in self._steps if step.txid > txid]
        if len(remaining) < len(self._steps):
            self._steps, self._txids, self._corrections = [], [], []
            for step in remaining:
                self.add(step)

    def correction(self, txid: int) -> int:
        """Return the correction that is added to the time of an entry, in microseconds."""
        corrections = self._corrections
        if not corrections:
            return 0
        index = bisect_right(self._txids, txid)
        return corrections[index] if index < len(corrections) else 0

    def correct_times(self, txids: Sequence[int], times: Sequence[int]) -> Sequence[int]:
        """Return the corrected times of some entries, which are in the order of the log."""
        if not txids or txids[0] >= self.last_txid:
            return times
        return [time + self.correction(txid) for txid, time in zip(txids, times, strict=True)]

    def has_step_between(self, first: int, end: int) -> bool:
        """Return whether a step lies after `first`, up to `end`: then times need not ascend."""
        return bisect_right(self._txids, first) < bisect_right(self._txids, end)


class StepFinder:
    """Finds steps back in the times of entries that are read in order.

    Args:
        known_steps: the known steps; only later ones are reported.
    """

    def __init__(self, known_steps: ClockSteps) -> None:
        self._known = known_steps
        self.found_steps: list[ClockStep] = []
        self.last_timestamp = 0

    def scan_times(self, txids: npt.NDArray[np.uint64], times: npt.NDArray[np.int64]) -> None:
        """Examine the next entries."""
        if not len(txids):
            return
        previous = np.concatenate(([self.last_timestamp or times[0]], times[:-1]))
        self.last_timestamp = int(times[-1])
        for index in np.flatnonzero(times < previous):
            txid = int(txids[index])
            if txid > self._known.last_txid:
                self.found_steps.append(ClockStep(txid, int(times[index]) - int(previous[index])))


def pack_steps(steps: ClockSteps) -> bytes:
    """Encode the file of steps."""
    all_steps = steps.all_steps
    head = _HEADER.pack(MAGIC, VERSION, len(all_steps))
    return with_checksum(head + b"".join(_STEP.pack(*row) for row in all_steps))


def unpack_steps(data: bytes) -> ClockSteps:
    """Decode the file of steps.

    Raises:
        JournalFormatError: it is damaged, or of another version.
    """
    check_side_file(data, MAGIC, VERSION, _HEADER.size, "a steps.ack file")
    count = _HEADER.unpack_from(data)[2]
    if len(data) < _HEADER.size + count * _STEP.size:
        raise JournalFormatError("it is too short for its clock steps")
    end = _HEADER.size + count * _STEP.size
    return ClockSteps(ClockStep(*row) for row in _STEP.iter_unpack(data[_HEADER.size : end]))


def read_steps(file: SidecarFile) -> ClockSteps:
    """Read the stored steps; without the file there are none.

    Raises:
        OSError: it cannot be read.
        JournalFormatError: it is damaged, or of another version.
    """
    data = file.read()
    return ClockSteps() if data is None else unpack_steps(data)
