"""The interface of all logging targets."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.log.levels import Level
from server.log.target_filter import LevelOverride, excluded, select, select_overridden


class LogLine(NamedTuple):
    """One entry as written.

    Attributes:
        text: the entry in UTF-8 with its line end; it may contain further line ends.
        level: its level.
        nanoseconds: the time when it was logged, since the epoch.
    """

    text: bytes
    level: Level
    nanoseconds: int


class LogTarget(ABC):
    """A destination of log entries. Used by its writer's thread only, once it is built.

    Attributes:
        spec: the configuration of the target.
        selected_ids: the ids of the messages that it writes.
        excluded_ids: the ids that it must not write.
        override: the level that it has at the moment instead of the configured selection.
        bytes_written: since the start, before compression.
        entries_written: since the start.
        may_rotate: whether it may rotate to the next file of the sequence when one is full.
    """

    def __init__(self, spec: LogTargetSpec, problems: Problems) -> None:
        """Compute the selection of the target; mistakes in it are added to `problems`."""
        self.spec = spec
        self.selected_ids = select(spec, problems)
        self.excluded_ids = excluded(spec, problems)
        self.override: LevelOverride | None = None
        self.bytes_written = 0
        self.entries_written = 0
        self.may_rotate = False

    def override_level(self, override: LevelOverride | None) -> None:
        """Select messages by an override, or by the configuration again; safe from any thread.

        Raises:
            re.error: the override's pattern is not a regular expression.
        """
        self.selected_ids = (
            select(self.spec, Problems())
            if override is None
            else select_overridden(self.spec, override)
        )
        self.override = override

    def reconfigure(self, spec: LogTargetSpec) -> None:
        """Use the selection and the threshold of another configuration, which has been checked."""
        self.spec = spec
        self.excluded_ids = excluded(spec, Problems())
        self.override_level(self.override)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the target in messages for operators."""

    @abstractmethod
    def write(self, lines: Sequence[LogLine]) -> None:
        """Write entries in their order and count them.

        Raises:
            OSError: the rest could not be written; `entries_written` counts the written ones.
        """

    def rotate(self, nanoseconds: int) -> None:  # noqa: B027  targets without files have nothing to rotate
        """Rotate to the next file of the sequence, named after the given time.

        Raises:
            OSError: the next file cannot be opened.
        """

    def close(self) -> None:  # noqa: B027  the console has nothing to close
        """Write all pending data and close the file or socket.

        Raises:
            OSError: some data could not be written.
        """

    def _count_written(self, lines: Sequence[LogLine]) -> None:
        self.entries_written += len(lines)
        self.bytes_written += sum(len(line.text) for line in lines)
