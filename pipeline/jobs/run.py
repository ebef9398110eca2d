"""The environment of a job: Spark on demand, output and progress."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from server.util.json_lines import json_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BAR_WIDTH: Final = 30
_UPDATE_INTERVAL_S: Final = 0.2
"""Seconds between two updates of the progress display."""


@dataclass(slots=True)
class JobRun:
    """One run of a job.

    Attributes:
        master: the Spark master.
        conf: Spark settings.
        is_dry: only print the work, do not do it.
        is_quiet: show no progress.
        out: the stream for readable results.
    """

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    is_dry: bool = False
    is_quiet: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)

    def spark(self) -> SparkSession:
        """Start Spark and return its session. A job calls this when it first needs Spark."""
        from pipeline.jobs.start import started

        shows = not self.is_quiet and sys.stderr.isatty()
        conf = {"spark.ui.showConsoleProgress": str(shows).lower(), **self.conf}
        spark = started("amps-pipeline", self.master, conf, shows=shows)
        _silence(spark)
        return spark

    def print_text(self, text: str) -> None:
        """Print a text to the user."""
        print(text, file=self.out, flush=True)

    def print_json(self, values: Mapping[str, object]) -> None:
        """Print an object to a program, as a line of JSON."""
        self.print_text(json_line(values).decode().rstrip("\n"))

    def start_progress(self, label: str, total: int) -> ProgressBar:
        """Return a new progress display."""
        return ProgressBar(label, total, is_shown=not self.is_quiet and sys.stderr.isatty())


class ProgressBar:
    """A progress bar on a terminal; shows nothing without one.

    Args:
        label: the name of the activity.
        total: the total amount, 0 if unknown.
        is_shown: whether to draw it.
    """

    def __init__(self, label: str, total: int, *, is_shown: bool) -> None:
        self.done_count = 0
        self._label = label
        self._total = total
        self._is_shown = is_shown
        self._started_s = time.monotonic()
        self._last_drawn_s = 0.0

    def add(self, count: int) -> None:
        """Add to the amount done."""
        self.done_count += count
        if self._is_shown and time.monotonic() - self._last_drawn_s >= _UPDATE_INTERVAL_S:
            self._draw()

    def end(self) -> None:
        """Draw the final state and end the line."""
        if self._is_shown:
            self._draw()
            sys.stderr.write("\n")

    def _draw(self) -> None:
        self._last_drawn_s = time.monotonic()
        rate = self.done_count / max(self._last_drawn_s - self._started_s, 0.001)
        text = f"{self.done_count:,} of {self._total:,}" if self._total else f"{self.done_count:,}"
        bar = ""
        if self._total:
            filled = min(_BAR_WIDTH * self.done_count // self._total, _BAR_WIDTH)
            bar = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] "
        sys.stderr.write(f"\r{self._label} {bar}{text}, {rate:,.0f}/s\x1b[K")
        sys.stderr.flush()


def _silence(spark: SparkSession) -> None:
    """Keep Spark from logging on standard error, and from printing a stack trace per failure.

    Errors reach the job as exceptions, and the job prints their cause. The standard error of
    processes that Java starts is printed by Java, and there is no setting against that.
    """
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # PySpark offers no other way to Java than this, which is None only after the session's end.
    java = spark.sparkContext._jvm.java  # type: ignore[union-attr]  # noqa: SLF001 - see above
    nowhere = java.io.PrintStream(java.io.OutputStream.nullOutputStream())
    java.lang.System.setErr(nowhere)
