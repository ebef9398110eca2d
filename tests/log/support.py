"""What the tests of the log share: target specs, a clock that is set by hand, and readers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from config_schema.problems import Location
from config_schema.spec import LogTargetSpec
from server.log.catalogue import CATALOGUE
from server.log.event_log import EventLog
from server.log.levels import Level

NEW_YEAR: Final = 1_704_067_200_000_000_000
"""2024-01-01T00:00:00Z in nanoseconds since the epoch."""

SECOND: Final = 1_000_000_000

LINE: Final = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}[+-]\d\d:\d\d) \[(?P<thread>\d+)\] "
    r"(?P<level>[a-z]+): (?P<id>[0-9A-F]{2}-\d{4}) (?P<text>.*)"
)

ONE_PER_LEVEL: Final = {
    level: next(message.id for message in CATALOGUE.values() if message.level is level)
    for level in Level
    if any(message.level is level for message in CATALOGUE.values())
}
"""The id of a message of each level that the catalogue uses."""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = NEW_YEAR

    def __call__(self) -> int:
        return self.now


def target(protocol: str = "file", **settings: Any) -> LogTargetSpec:
    """A logging target with nothing configured but what is given."""
    configured: dict[str, Any] = {
        "level": None,
        "levels": (),
        "include_errors": (),
        "exclude_errors": (),
        "file_name": None,
        "rotation_threshold": None,
        "ident": None,
        "options": (),
        "facility": None,
        "location": Location("config.xml", 7),
    }
    return LogTargetSpec(**(configured | settings | {"protocol": protocol}))


@contextmanager
def log_of(
    *targets: LogTargetSpec, clock: Clock | None = None, **settings: Any
) -> Iterator[EventLog]:
    """A log of an instance that has started; it is closed, and therefore written, at the end."""
    log = EventLog(targets, "unit-1", clock or Clock(), **settings)
    log.allow_rotation()
    try:
        yield log
    finally:
        log.close()


def ids(path: Path) -> list[str]:
    """The ids in a log file, in their order."""
    return [found["id"] for found in map(LINE.match, path.read_text().splitlines()) if found]
