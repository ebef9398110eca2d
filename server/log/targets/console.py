"""Standard output and standard error as logging targets."""

from collections.abc import Mapping, Sequence
from typing import Final

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from server.log.targets.base import LogLine, LogTarget
from server.log.targets.streams import PlainStream

DESCRIPTORS: Final[Mapping[str, int]] = {"stdout": 1, "stderr": 2}
"""File descriptors, used directly so that entries appear at once and in whole writes."""


class ConsoleTarget(LogTarget):
    """Writes to standard output or standard error, which stay open."""

    def __init__(self, spec: LogTargetSpec, problems: Problems) -> None:
        """Prepare the stream; mistakes in the configuration are added to `problems`."""
        super().__init__(spec, problems)
        self._stream = PlainStream(DESCRIPTORS[spec.protocol])

    @property
    def name(self) -> str:
        """The protocol, which serves as the name."""
        return self.spec.protocol

    def write(self, lines: Sequence[LogLine]) -> None:
        """See `LogTarget.write`."""
        self._stream.retry()
        self._count_written(lines)
        self._stream.write(b"".join(line.text for line in lines))
