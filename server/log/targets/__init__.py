"""The targets of log entries: one module for each kind."""

from collections.abc import Sequence

from config_schema.problems import Problem, Problems
from config_schema.spec import LogTargetSpec
from server.log.targets.base import LogLine, LogTarget
from server.log.targets.console import DESCRIPTORS, ConsoleTarget
from server.log.targets.file import FORMATS, FileTarget
from server.log.targets.syslog import SOCKET, SyslogTarget

__all__ = [
    "ConsoleTarget",
    "FileTarget",
    "LogLine",
    "LogTarget",
    "LogTargetError",
    "SyslogTarget",
    "open_targets",
]


class LogTargetError(Exception):
    """Targets that cannot be used as configured; its text has one located line for each problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Keep the problems, in the order of the configuration."""
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def open_targets(
    specs: Sequence[LogTargetSpec],
    instance_name: str,
    nanoseconds: int,
    syslog_address: str = SOCKET,
) -> tuple[tuple[LogTarget, ...], tuple[Problem, ...]]:
    """Build and open the targets of a configuration.

    Args:
        specs: the targets, in the order of the configuration.
        instance_name: the name of the instance, for targets without a configured name.
        nanoseconds: the time since the epoch that files are named after.
        syslog_address: the path of the system logger's socket.

    Returns:
        The targets, and remarks about them that do not keep the instance from starting.

    Raises:
        LogTargetError: some of them are configured wrongly, or their files cannot be opened; the
            opened ones are closed again.
    """
    problems = Problems()
    targets = tuple(
        _open(spec, problems, instance_name, nanoseconds, syslog_address) for spec in specs
    )
    if problems.has_errors:
        for target in targets:
            target.close()
        raise LogTargetError(tuple(problems))
    return targets, tuple(problems)


def _open(
    spec: LogTargetSpec,
    problems: Problems,
    instance_name: str,
    nanoseconds: int,
    syslog_address: str,
) -> LogTarget:
    if spec.protocol in DESCRIPTORS:
        return ConsoleTarget(spec, problems)
    if spec.protocol in FORMATS:
        return FileTarget(spec, problems, nanoseconds)
    return SyslogTarget(spec, problems, instance_name, syslog_address)
