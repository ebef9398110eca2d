"""What every logging target offers to the writer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.events.levels import Level
from server.events.selection import excluded, select


class Line(NamedTuple):
    """One entry as it is written.

    Attributes:
        text: the entry in UTF-8 with its line end; it may hold further line ends.
        level: its level.
        nanoseconds: when it was logged, since the epoch.
    """

    text: bytes
    level: Level
    nanoseconds: int


class Target(ABC):
    """A place that entries are written to. Used by the writer's thread alone, once it is built.

    Attributes:
        spec: the configuration of the target.
        wanted: the ids of the messages that it writes.
        excluded: the ids that it must not write.
        bytes_written: since the start, before compression.
        entries_written: since the start.
        rotates: whether it may go on in the next file of the sequence when one is full.
    """

    def __init__(self, spec: LogTargetSpec, problems: Problems) -> None:
        """Work out what the target writes; mistakes in that are added to `problems`."""
        self.spec = spec
        self.wanted = select(spec, problems)
        self.excluded = excluded(spec, problems)
        self.bytes_written = 0
        self.entries_written = 0
        self.rotates = False

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call the target in front of people."""

    @abstractmethod
    def write(self, lines: Sequence[Line]) -> None:
        """Write entries in their order and account for them.

        Raises:
            OSError: the rest could not be written; `entries_written` tells how many were.
        """

    def rotate(self, nanoseconds: int) -> None:  # noqa: B027  targets without files have nothing to rotate
        """Go on in the next file of the sequence, as of that moment.

        Raises:
            OSError: the next file cannot be opened.
        """

    def close(self) -> None:  # noqa: B027  the console has nothing to close
        """Write what is left and give up the file or socket.

        Raises:
            OSError: something could not be written.
        """

    def _account(self, lines: Sequence[Line]) -> None:
        self.entries_written += len(lines)
        self.bytes_written += sum(len(line.text) for line in lines)
