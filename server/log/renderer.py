"""Renders log entries to lines: a chain of structlog processors.

Many entries are processed per call, because the chain itself takes longer than rendering a line.

`2021-11-23T14:49:38.3442510-08:00 [1] info: 00-0015 text`, in local time with its offset from UTC,
seven digits of a second, and the number of the logging thread. Further lines of a text follow
unchanged.

Source: AMPS User Guide, Log Message Format.
"""

import time
from collections.abc import Sequence
from typing import Final, cast

import structlog
from structlog.typing import EventDict, ProcessorReturnValue, WrappedLogger

from server.log.entry_buffer import EventLogEntry
from server.log.targets.base import LogLine

MAX_VALUE_LENGTH: Final = 10_000
"""Maximum characters of a value that is not written in full: clients can send texts of any size."""


class EntryLogger(structlog.BoundLoggerBase):
    """A bound logger for entries of the catalogue. Used by one thread only."""

    def lines(self, entries: Sequence[EventLogEntry]) -> Sequence[LogLine]:
        """Run the processors over a batch of entries, which takes less time than one by one.

        Returns:
            A line for each, in their order.
        """
        return cast("Sequence[LogLine]", self._proxy_to_logger("msg", entries=entries))


def entry_logger() -> EntryLogger:
    """Return a logger with the processors of this module."""
    return cast(
        EntryLogger,
        structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=[fill_templates, LocalTimeStamper(), render_lines],
            wrapper_class=EntryLogger,
        ).bind(),
    )


def fill_templates(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add "texts", the rendered texts of the entries."""
    event["texts"] = [
        message.template.render(fields, None if message.is_untruncated else MAX_VALUE_LENGTH)
        for message, _, _, _, fields in event["entries"]
    ]
    return event


class LocalTimeStamper:
    """Adds timestamps to entries; caches date and offset, which change once per second at most."""

    _TICKS_PER_SECOND: Final = 10_000_000
    _NANOSECONDS_PER_TICK: Final = 100

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._second = -1
        self._prefix = ""
        self._offset = ""

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Add "timestamps"."""
        event["timestamps"] = [
            self._stamp(nanoseconds) for _, _, nanoseconds, _, _ in event["entries"]
        ]
        return event

    def _stamp(self, nanoseconds: int) -> str:
        second, ticks = divmod(nanoseconds // self._NANOSECONDS_PER_TICK, self._TICKS_PER_SECOND)
        if second != self._second:
            self._set_second(second)
        return f"{self._prefix}.{ticks:07d}{self._offset}"

    def _set_second(self, second: int) -> None:
        local_time = time.localtime(second)
        sign = "-" if local_time.tm_gmtoff < 0 else "+"
        hours, minutes = divmod(abs(local_time.tm_gmtoff) // 60, 60)
        self._second = second
        self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", local_time)
        self._offset = f"{sign}{hours:02d}:{minutes:02d}"


def render_lines(_logger: WrappedLogger, _method: str, event: EventDict) -> ProcessorReturnValue:
    """Return the entries as bytes with their line ends."""
    lines = []
    for (message, _, nanoseconds, thread, _), stamp, text in zip(
        event["entries"], event["timestamps"], event["texts"], strict=True
    ):
        line = f"{stamp} [{thread}] {message.level_label}: {message.id} {text}\n"
        data = line.encode("utf-8", "backslashreplace")
        lines.append(LogLine(data, message.level, nanoseconds))
    return (lines,), {}
