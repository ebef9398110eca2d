"""The targets of the log. Read on the thread of statistics: a file system may block it."""

from __future__ import annotations

import syslog
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from server.log.targets import ConsoleTarget, FileTarget, SyslogTarget
from server.statistics.host import free_percent
from server.statistics.resources import CONSOLE_LOGGERS, FILE_LOGGERS, SYSLOG_LOGGERS
from server.statistics.sample import StatisticsEntry, StatisticsSource

if TYPE_CHECKING:
    from server.log.event_log import EventLog
    from server.log.targets import LogTarget
    from server.statistics.schema import Resource, StatisticValue

_TargetT = TypeVar("_TargetT", bound="LogTarget")


def logging_sources(log: EventLog) -> list[StatisticsSource]:
    """Return the sources of the log's figures."""
    return [
        TargetsSource(CONSOLE_LOGGERS, log, ConsoleTarget, _console),
        FilesSource(log),
        TargetsSource(SYSLOG_LOGGERS, log, SyslogTarget, _syslog),
    ]


def _find_targets(log: EventLog, kind: type[_TargetT]) -> Iterator[tuple[str, _TargetT]]:
    """Yield the targets of a kind with their numbers, in the order of the configuration."""
    for number, target in enumerate(log.targets, 1):
        if isinstance(target, kind):
            yield str(number), target


class TargetsSource(Generic[_TargetT]):
    """Targets without files: standard streams, or the system logger.

    Args:
        resource: the resource.
        log: has the targets.
        kind: their class.
        read_static_values: returns the values of a target that change with its level only.
    """

    def __init__(
        self,
        resource: Resource,
        log: EventLog,
        kind: type[_TargetT],
        read_static_values: Callable[[_TargetT], tuple[StatisticValue, ...]],
    ) -> None:
        self.resource = resource
        self._log = log
        self._kind = kind
        self._read_static_values = read_static_values
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, target in _find_targets(self._log, self._kind):
            static_values = self._read_static_values(target)
            if self._static_values.get(number) != static_values:
                self._static_values[number] = static_values
            yield StatisticsEntry(number, self._static_values[number], (target.bytes_written,))


class FilesSource:
    """Targets that write to files; the file may change."""

    resource: Resource = FILE_LOGGERS

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._static_values: dict[str, tuple[StatisticValue, ...]] = {}

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for number, target in _find_targets(self._log, FileTarget):
            static_values = _file(target)
            if self._static_values.get(number) != static_values:
                self._static_values[number] = static_values
            dynamic_values = target.bytes_written, free_percent(target.path)
            yield StatisticsEntry(number, self._static_values[number], dynamic_values)


def _selection(target: LogTarget) -> tuple[str, str, str]:
    """Return the fields that all kinds of targets have in common."""
    spec = target.spec
    lowest = () if spec.level is None else (spec.level,)
    override = target.override
    levels = lowest + spec.levels
    if override is not None:
        levels = (str(override),) if override.pattern is None else (*levels, str(override))
    return (
        ",".join(spec.exclude_errors),
        ",".join(spec.include_errors),
        ",".join(levels),
    )


def _file(target: FileTarget) -> tuple[StatisticValue, ...]:
    threshold = target.spec.rotation_threshold
    rotates = int(threshold is not None)
    return *_selection(target), target.path, target.name, rotates, threshold or 0


def _console(target: ConsoleTarget) -> tuple[StatisticValue, ...]:
    return *_selection(target), target.spec.protocol


def _syslog(target: SyslogTarget) -> tuple[StatisticValue, ...]:
    options = sum(getattr(syslog, option, 0) for option in target.spec.options)
    return *_selection(target), target.facility, target.identity, options
