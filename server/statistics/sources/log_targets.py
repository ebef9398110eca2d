"""The targets of the log. Read on the thread of statistics: a file system may block it."""

from __future__ import annotations

import syslog
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from server.log.targets import ConsoleTarget, FileTarget, SyslogTarget
from server.statistics.host import free_percent
from server.statistics.resources import CONSOLE_LOGGERS, FILE_LOGGERS, SYSLOG_LOGGERS
from server.statistics.sample import StatisticsEntry, StatisticsSource

if TYPE_CHECKING:
    from server.log.targets import LogTarget
    from server.statistics.schema import Resource, StatisticValue

_TargetEntry: TypeAlias = "tuple[ConsoleTarget | SyslogTarget, tuple[StatisticValue, ...]]"
"""A target with its static values."""


def logging_sources(targets: Sequence[LogTarget]) -> list[StatisticsSource]:
    """Return the sources of the log's figures.

    Args:
        targets: in the order of the configuration, in which they are numbered.
    """
    consoles: dict[str, _TargetEntry] = {}
    files: dict[str, FileTarget] = {}
    loggers: dict[str, _TargetEntry] = {}
    for number, target in enumerate(targets, 1):
        if isinstance(target, ConsoleTarget):
            consoles[str(number)] = target, (*_selection(target), target.spec.protocol)
        elif isinstance(target, FileTarget):
            files[str(number)] = target
        elif isinstance(target, SyslogTarget):
            loggers[str(number)] = target, _syslog(target)
    return [
        FixedTargetsSource(CONSOLE_LOGGERS, consoles),
        FilesSource(files),
        FixedTargetsSource(SYSLOG_LOGGERS, loggers),
    ]


class FixedTargetsSource:
    """Targets with static values that never change: standard streams, or the system logger.

    Args:
        resource: the resource.
        targets: by number, the targets with their static values.
    """

    def __init__(self, resource: Resource, targets: Mapping[str, _TargetEntry]) -> None:
        self.resource = resource
        self._targets = targets

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
