"""Checks, shows or runs a configuration, as the options of ampServer request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import setproctitle
import uvloop

from actions.defaults import reload_on_sighup
from actions.explain import explain
from actions.local_zone import local_zone
from config_schema.configuration_text import redact_document, shown
from config_schema.document import ConfigDocument
from config_schema.problems import Problems, Severity
from config_schema.spec import InstanceSpec, LogTargetSpec
from config_schema.version import BANNER
from server.app import access_report
from server.app.background_output import background_output, takes_data
from server.app.check_report import TopologyCheck, print_problems, report
from server.app.configuration import Configuration, read_configuration
from server.app.daemon import detach
from server.app.reload.configuration_reload import make_reload
from server.app.startup_log import announce
from server.app.stdio import OutputError, put, say
from server.app.wiring.access_explanation import AccessQuery, explain_access
from server.app.wiring.foreign_files import ForeignFilesError, refuse_foreign_files
from server.app.wiring.instance import Instance, StartError
from server.app.wiring.plan import as_graphviz, as_text, plan_runtime
from server.app.wiring.provision import ProvisionError
from server.app.wiring.renamed_instance import log_journals_of_others
from server.app.wiring.start_check import check_start
from server.log.event_log import PROBLEM_IDS, EventLog
from server.log.targets import LogTargetError
from server.log.targets.console import DESCRIPTORS
from server.log.targets.memory import MemoryTarget
from server.process import allocator, garbage_collection
from server.process.supervisor import Supervisor
from server.security.modules import SecurityError

_PROBLEM: Final = PROBLEM_IDS[Severity.WARNING]
_SWITCH_SECONDS: Final = 0.000_5
"""How long a helper thread may hold the GIL while the engine waits for it, as it does after each
system call. Python's default of 5 ms would be several scheduling rounds."""

_ERRORS_TO_TERMINAL: Final = LogTargetSpec.plain("stderr", "error")
"""The log target for modules that are queried before the instance runs."""

_MASK: Final = stat.S_IWGRP | stat.S_IWOTH
_DRAWINGS: Final = {"graph": as_text, "graphviz": as_graphviz}


@dataclass(frozen=True)
class Invocation:
    """The request of a command line; without a specific task, the configuration is run.

    Attributes:
        paths: the paths of the configurations; only tasks other than running take several.
        defines: variables given on the command line.
        checks_configuration: report the problems of the configuration.
        graph_format: `graph` or `graphviz`: print the parts of the instance.
        explains_actions: print a description of each action.
        user: print the permissions of this user; None for no user.
        topics: topics to report permissions for, besides those of the configuration.
        admin_paths: paths of the admin interface, likewise.
        as_json: print JSON.
        dumps_configuration: print the configuration expanded.
        is_daemon: run as a daemon.
        renames_foreign_files: rename foreign files at the paths of the instance's own files.
        reloads_on_sighup: reload the configuration on SIGHUP, unless an action of it handles that.
    """

    paths: Sequence[str]
    defines: Mapping[str, str]
    checks_configuration: bool
    graph_format: str | None
    explains_actions: bool
    user: str | None
    topics: Sequence[str]
    admin_paths: Sequence[str]
    as_json: bool
    dumps_configuration: bool
    is_daemon: bool
    renames_foreign_files: bool
    reloads_on_sighup: bool


def run_invocation(invocation: Invocation) -> int:
    """Execute the request, and return the exit code.

    Raises:
        OutputError: the requested output cannot be written.
    """
    garbage_collection.begin()
    allocator.limit_memory_trim()
    sys.setswitchinterval(_SWITCH_SECONDS)
    os.environ.update(invocation.defines)
    topology = TopologyCheck()
    code = max([_run_task(path, invocation, topology) for path in invocation.paths])
    return (
        max(code, topology.verify(as_json=invocation.as_json))
        if invocation.checks_configuration
        else code
    )


def _run_task(path: str, invocation: Invocation, topology: TopologyCheck) -> int:
    read = read_configuration(path, invocation.defines)
    problems, document, root, spec = read.problems, read.document, read.root, read.spec
    if document is not None and document.is_complete and invocation.dumps_configuration:
        _dump(document)
        return 0
    if document is None or root is None or spec is None:
        topology.add_unusable(path)
        return report(
            path, problems, as_json=invocation.as_json and invocation.checks_configuration
        )
    if not (
        invocation.checks_configuration
        or invocation.explains_actions
        or invocation.graph_format
        or invocation.user is not None
    ):
        return _run(read, spec, document, invocation)
    check_start(spec, root, problems)
    if invocation.graph_format and not problems.has_errors:
        put(f"{_DRAWINGS[invocation.graph_format](plan_runtime(spec, document.secrets))}\n")
    if invocation.explains_actions and not problems.has_errors:
        explained = explain(spec, datetime.now(local_zone()))
        put(f"{shown(explained, document.secrets)}\n")
    if invocation.user is not None and not problems.has_errors:
        _explain_access(path, spec, invocation, invocation.user, problems)
    topology.add(path, spec, document.secrets)
    return report(path, problems, as_json=invocation.as_json and invocation.checks_configuration)


def _dump(document: ConfigDocument) -> None:
    """Print a configuration: with secrets redacted on a terminal, else complete, ready to run."""
    text = document.expanded_text
    if sys.stdout.isatty():
        text = redact_document(document)
        if text != document.expanded_text:
            say("secrets are not shown on a terminal: a file or a pipe gets them")
    put(text, encoding="utf-8")  # the encoding that its XML declaration names


def _explain_access(
    path: str, spec: InstanceSpec, invocation: Invocation, user: str, problems: Problems
) -> None:
    """Print the permissions of a user, or record the error that prevents it."""
    if invocation.admin_paths and (spec.admin is None or spec.admin.inet_addr is None):
        problems.warning(spec, "Admin", "there is no admin interface, so --path has no result")
    log = EventLog([_ERRORS_TO_TERMINAL], spec.name)
    question = AccessQuery(user, invocation.topics, invocation.admin_paths)
    try:
        access_points = asyncio.run(explain_access(spec, question, log))
    except (ProvisionError, SecurityError) as error:
        problems.error(spec, "", str(error))
        return
    finally:
        log.close()
    show = access_report.as_json if invocation.as_json else access_report.as_text
    put(f"{show(user, path, access_points)}\n")


def _run(
    read: Configuration, spec: InstanceSpec, document: ConfigDocument, invocation: Invocation
) -> int:
    problems = read.problems
    with contextlib.suppress(OutputError):  # the banner is optional
        if takes_data(DESCRIPTORS["stdout"]):
            put(f"{BANNER}\n")
    if invocation.is_daemon:
        _warn_of_consoles(spec, problems)
    report_start: Callable[[str | None], None] = (
        detach() if invocation.is_daemon else _report_to_terminal
    )
    if spec.process_name is not None:
        setproctitle.setproctitle(spec.process_name)
    # Other users must not write to any file or directory, even if the umask would permit it.
    os.umask(os.umask(_MASK) | _MASK)
    with background_output():
        return _serve(read, spec, document, invocation, report_start)


def _serve(
    read: Configuration,
    spec: InstanceSpec,
    document: ConfigDocument,
    invocation: Invocation,
    report_start: Callable[[str | None], None],
) -> int:
    problems = read.problems
    try:
        recent = None if spec.admin is None else MemoryTarget()
        log = EventLog(spec.logging, spec.name, recent=recent)
    except LogTargetError as error:
        print_problems(problems, Severity.WARNING)
        report_start(shown(str(error), document.secrets))
        return 1
    if not _reaches_terminal(log):
        print_problems(problems, Severity.WARNING)
    announce(spec, log, problems, document, sys.argv)

    def on_started() -> None:
        log.allow_rotation()
        report_start(None)

    try:
        refuse_foreign_files(spec, log, set_aside=invocation.renames_foreign_files)
        log_journals_of_others(spec, log)
        supervisor = Supervisor(os.environ)
        instance = Instance(
            reload_on_sighup(spec) if invocation.reloads_on_sighup else spec,
            log,
            document,
            supervisor,
            partial(make_reload, read, invocation.defines, log),
        )
        uvloop.run(instance.run(on_started))
    except (ProvisionError, StartError) as error:
        log.emit("00-0012", reason=shown(str(error), document.secrets))
        files = error.files if isinstance(error, ForeignFilesError) else ()
        report_start(shown("\n".join((*files, str(error))), document.secrets))
        return 1
    finally:
        log.close()
    return 0


def _warn_of_consoles(spec: InstanceSpec, problems: Problems) -> None:
    for target in spec.logging:
        if target.protocol in DESCRIPTORS:
            problems.warning(
                target,
                "Target/Protocol",
                f"{target.protocol} of a server in the background is not visible",
                "add a target of the protocol file or syslog",
            )


def _reaches_terminal(log: EventLog) -> bool:
    """Return whether a log target already writes configuration problems to standard error."""
    return any(
        _PROBLEM in target.selected_ids and _is_standard_error(DESCRIPTORS[target.spec.protocol])
        for target in log.targets
        if target.spec.protocol in DESCRIPTORS
    )


def _is_standard_error(descriptor: int) -> bool:
    return os.path.sameopenfile(descriptor, DESCRIPTORS["stderr"])


def _report_to_terminal(failure: str | None) -> None:
    if failure is not None:
        say(failure)
