"""Writes the first log entries of a start: the program, its host and its configuration.

For a reader of the log of a failed start, months later and on another machine, these entries are
the only record of the program and its environment.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Sequence
from typing import Final

from config_schema.configuration_text import redact_command_line, redact_document
from config_schema.document import ConfigDocument
from config_schema.problems import Problems
from config_schema.spec import InstanceSpec
from config_schema.version import AMPS_VERSION, VERSION
from server.log.event_log import EventLog

_LIMITS: Final = {
    "open files": resource.RLIMIT_NOFILE,
    "address space": resource.RLIMIT_AS,
    "locked memory": resource.RLIMIT_MEMLOCK,
    "core file": resource.RLIMIT_CORE,
    "file size": resource.RLIMIT_FSIZE,
}


def announce(
    spec: InstanceSpec,
    log: EventLog,
    problems: Problems,
    document: ConfigDocument,
    command_line: Sequence[str],
) -> None:
    """Log the program, its host, its configuration, and the problems of the configuration.

    Args:
        spec: the instance.
        log: the log.
        problems: the problems that the check of the configuration found.
        document: the whole configuration as it is used.
        command_line: the program and its arguments.
    """
    path = spec.location.file
    log.emit("00-0001", version=VERSION, amps_version=AMPS_VERSION)
    log.emit("00-0004", instance=spec.name, version=VERSION, pid=os.getpid(), path=path)
    log.emit("00-0030", arguments=redact_command_line(command_line, document.secrets))
    log.emit("00-0031", path=_working_directory())
    _announce_host(log)
    log.emit("00-0002", path=path, text=redact_document(document))
    for problem in problems:
        log.emit_problem(problem)
    for topic in spec.sow:
        if topic.name_has_regex_characters:
            log.emit("00-0007", topic=topic.name)


def _announce_host(log: EventLog) -> None:
    now = time.localtime()
    log.emit("01-0019", zone=now.tm_zone, offset=time.strftime("%z", now))
    system = platform.uname()
    log.emit("00-0032", system=f"{system.system} {system.release} {system.machine}")
    log.emit(
        "00-0033",
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )
    log.emit("00-0054", limits=", ".join(map(_limit, _LIMITS)))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "none, it has been removed"


def _limit(name: str) -> str:
    soft, hard = (
        "unlimited" if value == resource.RLIM_INFINITY else str(value)
        for value in resource.getrlimit(_LIMITS[name])
    )
    return f"{name} {soft}" if soft == hard else f"{name} {soft} (at most {hard})"
