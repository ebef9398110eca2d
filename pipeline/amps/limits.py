"""The upper and lower limits of the size of micro-batches."""

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

from pipeline.amps.log_measure import LogMeasure
from pipeline.amps.options import AmpsOptions


class BatchLimits(NamedTuple):
    """The limits of the next micro-batch.

    Attributes:
        max_rows: the maximum number of messages; None for no limit.
        max_bytes: the number of bytes after which it ends; None for no limit. The last message may
            exceed it.
        min_rows: the number of messages that it waits for.
        max_delay_s: the maximum time that it waits for them, in seconds.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int = 1
    max_delay_s: float = 0.0

    def is_enough(self, available: LogMeasure, since: float) -> bool:
        """Return whether the available messages are enough for a micro-batch.

        Args:
            available: the available messages.
            since: the monotonic time at which the last one was planned.
        """
        is_cut = not available.is_whole  # the limit is reached, or the server has stopped counting
        return (
            is_cut
            or available.rows >= self.min_rows
            or time.monotonic() - since >= self.max_delay_s
        )


def default_limit(options: AmpsOptions) -> ReadLimit:
    """Return the limit for Spark, which knows one limit at a time and passes it back."""
    if options.max_rows_per_trigger is not None:
        return ReadMaxRows(options.max_rows_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_rows_per_trigger is not None:
        return ReadMinRows(options.min_rows_per_trigger)
    return ReadAllAvailable()


def limits_of(options: AmpsOptions, limit: ReadLimit) -> BatchLimits:
    """Return the limits that apply for Spark's limit: all limits of the options, or none."""
    if isinstance(limit, ReadAllAvailable):
        return BatchLimits()
    return BatchLimits(
        limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_rows_per_trigger,
        options.max_bytes_per_trigger,
        options.min_rows_per_trigger or 1,
        options.max_trigger_delay,
    )
