"""From what a caller logged to the line that is written: a chain of structlog processors.

`2021-11-23T14:49:38.3442510-08:00 [1] info: 00-0015 text`, in local time with its offset from UTC,
seven digits of a second, and the number of the thread that logged. The lines of a text after its
first follow as they are.

Source: AMPS User Guide, Log Message Format.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, cast

import structlog
from structlog.typing import EventDict, WrappedLogger

from server.events.catalogue import Message
from server.events.targets.base import Line

LONGEST_VALUE: Final = 10_000
"""Characters of a value that is not written in full: clients may have sent any text."""


class EntryLogger(structlog.BoundLoggerBase):
    """A bound logger for entries of the catalogue. Used by the writer's thread alone."""

    def line(
        self, message: Message, nanoseconds: int, thread: int, fields: Mapping[str, object]
    ) -> Line:
        """Run the processors over one entry.

        Args:
            message: its place in the catalogue.
            nanoseconds: when it was logged, since the epoch.
            thread: the number of the thread that logged it.
            fields: the values for its template.
        """
        text = self._proxy_to_logger(
            "msg",
            message.id,
            message=message,
            nanoseconds=nanoseconds,
            thread=thread,
            fields=fields,
        )
        return Line(cast(bytes, text), message.level, nanoseconds)


def entry_logger() -> EntryLogger:
    """A logger with the processors of this module."""
    return cast(
        EntryLogger,
        structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=[fill_template, LocalTimeStamper(), render_line],
            wrapper_class=EntryLogger,
        ).bind(),
    )


def fill_template(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Give the entry its text and the name of its level."""
    message: Message = event["message"]
    longest = None if message.is_whole else LONGEST_VALUE
    event["text"] = message.template.render(event["fields"], longest)
    event["level"] = message.level.label
    return event


class LocalTimeStamper:
    """Gives the entry its time stamp; works out date and offset once per second, not per entry."""

    _TICKS_PER_SECOND: Final = 10_000_000
    _NANOSECONDS_PER_TICK: Final = 100

    def __init__(self) -> None:
        """Start with no second known."""
        self._second = -1
        self._prefix = ""
        self._offset = ""

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Add "timestamp" from "nanoseconds"."""
        second, ticks = divmod(
            event["nanoseconds"] // self._NANOSECONDS_PER_TICK, self._TICKS_PER_SECOND
        )
        if second != self._second:
            self._set_second(second)
        event["timestamp"] = f"{self._prefix}.{ticks:07d}{self._offset}"
        return event

    def _set_second(self, second: int) -> None:
        moment = time.localtime(second)
        sign = "-" if moment.tm_gmtoff < 0 else "+"
        hours, minutes = divmod(abs(moment.tm_gmtoff) // 60, 60)
        self._second = second
        self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", moment)
        self._offset = f"{sign}{hours:02d}:{minutes:02d}"


def render_line(_logger: WrappedLogger, _method: str, event: EventDict) -> Any:
    """The entry as bytes with its line end."""
    origin = f"{event['timestamp']} [{event['thread']}] {event['level']}: {event['event']}"
    return f"{origin} {event['text']}\n".encode("utf-8", "backslashreplace")
