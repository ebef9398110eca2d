"""The levels of log messages, in the order of their severity."""

from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """The severity of a message. A target's `Level` is the lowest that it writes.

    Source: AMPS User Guide, Message Levels.
    """

    DEVELOPER = 0
    TRACE = 1
    STATS = 2
    INFO = 3
    WARNING = 4
    ERROR = 5
    CRITICAL = 6
    EMERGENCY = 7
    NONE = 8
    """No message has this level: as a target's lower bound it excludes every message."""

    @property
    def label(self) -> str:
        """The name in configurations and log lines."""
        return self.name.lower()


LEVELS: Final = {level.label: level for level in Level} | {"debug": Level.INFO}
"""All names that a configuration may use; `debug` is obsolete and means `info`."""


def parse_level(name: str) -> Level:
    """Return the level of that name, in any case.

    Raises:
        ValueError: there is no such level; the text lists the existing ones.
    """
    level = LEVELS.get(name.strip().lower())
    if level is None:
        labels = ", ".join(level.label for level in Level)
        raise ValueError(f"'{name}' is not a log level; expected one of {labels}")
    return level
