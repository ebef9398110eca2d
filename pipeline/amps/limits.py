"""How large a micro-batch may be, and how small."""

from __future__ import annotations

import time
from typing import NamedTuple

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from pipeline.amps.measuring import Measure
from pipeline.amps.options import AmpsOptions


class Limits(NamedTuple):
    """What counts for the next micro-batch.

    Attributes:
        rows: how many messages at most; None for any number.
        size: after how many bytes it ends; None for any number. The last message may go beyond.
        least: how many messages it waits for.
        delay: seconds that it waits for them at most.
    """

    rows: int | None = None
    size: int | None = None
    least: int = 1
    delay: float = 0.0

    def allow(self, found: Measure, since: float) -> bool:
        """Whether what there is is worth a micro-batch.

        Args:
            found: what there is.
            since: when the last one was planned, by the monotonic clock.
        """
        is_cut = not found.is_whole  # it is as large as may be, or will not be counted further
        return is_cut or found.rows >= self.least or time.monotonic() - since >= self.delay


def default_limit(options: AmpsOptions) -> ReadLimit:
    """What Spark is told: it knows one limit at a time, and hands it back."""
    if options.max_rows_per_trigger is not None:
        return ReadMaxRows(options.max_rows_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_rows_per_trigger is not None:
        return ReadMinRows(options.min_rows_per_trigger)
    return ReadAllAvailable()


def limits_of(options: AmpsOptions, limit: ReadLimit) -> Limits:
    """What counts, as Spark says it: all limits of the options, or none."""
    if isinstance(limit, ReadAllAvailable):
        return Limits()
    return Limits(
        limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_rows_per_trigger,
        options.max_bytes_per_trigger,
        options.min_rows_per_trigger or 1,
        options.max_trigger_delay,
    )
