"""Watches a streaming query until it ends or is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.jobs.run import ProgressBar

_POLL_INTERVAL_S: Final = 1
"""Seconds between two polls of the progress."""


def watch(query: StreamingQuery, progress: ProgressBar, interrupted: Event) -> None:
    """Show the progress of a query until it ends, or the user interrupts."""
    seen = -1
    is_over = False
    while not (is_over or interrupted.is_set()):
        is_over = bool(query.awaitTermination(_POLL_INTERVAL_S))
        for batch in query.recentProgress:
            if batch.batchId > seen:
                seen = batch.batchId
                progress.add(batch.numInputRows)


@contextmanager
def catch_interrupts() -> Iterator[Event]:
    """Catch interrupts; yields an event that an interrupt sets.

    Spark's own handler calls Java from within a call of Java, which fails.
    """
    interrupted = Event()
    if current_thread() is not main_thread():  # signals are delivered to the main thread only
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
