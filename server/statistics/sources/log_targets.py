"""The targets of the log. Read on the thread of statistics: a file system may block it."""

from __future__ import annotations

import syslog
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from server.log.targets import ConsoleTarget, FileTarget, SyslogTarget
from server.statistics.host import free_percent
from server.statistics.resources import CONSOLE_LOGGERS, FILE_LOGGERS, SYSLOG_LOGGERS
from server.statistics.sample import StatisticsEntry, StatisticsSource

if TYPE_CHECKING:
    from server.log.targets import LogTarget
    from server.statistics.schema import Resource, StatisticValue


def logging_sources(targets: Sequence[LogTarget]) -> list[StatisticsSource]:
    """Return the sources of the log's figures.

    Args:
        targets: in the order of the configuration, in which they are numbered.
    """
    consoles: dict[str, ConsoleTarget] = {}
    files: dict[str, FileTarget] = {}
    loggers: dict[str, SyslogTarget] = {}
    for number, target in enumerate(targets, 1):
        if isinstance(target, ConsoleTarget):
            consoles[str(number)] = target
        elif isinstance(target, FileTarget):
            files[str(number)] = target
        elif isinstance(target, SyslogTarget):
            loggers[str(number)] = target
    return [ConsolesSource(consoles), FilesSource(files), SyslogSource(loggers)]


class ConsolesSource:
    """Targets that write to the standard streams."""

    resource: Resource = CONSOLE_LOGGERS

    def __init__(self, targets: dict[str, ConsoleTarget]) -> None:
        self._targets = {
            number: (target, (*_selection(target), target.spec.protocol))
            for number, target in targets.items()
        }

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, (target, static_values) in self._targets.items():
            yield StatisticsEntry(number, static_values, (target.bytes_written,))


class FilesSource:
    """Targets that write to files; the file may change."""

    resource: Resource = FILE_LOGGERS

    def __init__(self, targets: dict[str, FileTarget]) -> None:
        self._targets = targets
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, target in self._targets.items():
            static_values = _file(target)
            if self._static_values.get(number) != static_values:
                self._static_values[number] = static_values
            dynamic_values = target.bytes_written, free_percent(target.path)
            yield StatisticsEntry(number, self._static_values[number], dynamic_values)


class SyslogSource:
    """Targets that write to the system logger."""

    resource: Resource = SYSLOG_LOGGERS

    def __init__(self, targets: dict[str, SyslogTarget]) -> None:
        self._targets = {number: (target, _syslog(target)) for number, target in targets.items()}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, (target, static_values) in self._targets.items():
            yield StatisticsEntry(number, static_values, (target.bytes_written,))


def _selection(target: LogTarget) -> tuple[str, str, str]:
    """Return the fields that all kinds of targets have in common."""
    spec = target.spec
    lowest = () if spec.level is None else (spec.level,)
    return (
        ",".join(spec.exclude_errors),
        ",".join(spec.include_errors),
        ",".join(lowest + spec.levels),
    )


def _file(target: FileTarget) -> tuple[StatisticValue, ...]:
    threshold = target.spec.rotation_threshold
    rotates = int(threshold is not None)
    return *_selection(target), target.path, target.name, rotates, threshold or 0


def _syslog(target: SyslogTarget) -> tuple[StatisticValue, ...]:
    options = sum(getattr(syslog, option, 0) for option in target.spec.options)
    return *_selection(target), target.facility, target.identity, options
