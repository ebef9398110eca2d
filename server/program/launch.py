"""What ampServer does with a configuration: check it, show it, or run it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import setproctitle
import uvloop

from actions.explain import explain
from actions.local_zone import local_zone
from config_schema.compile import compile_config
from config_schema.document import Document, load
from config_schema.problems import Problems, Severity
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.assembly.catalogue import ProgramCatalogue
from server.assembly.expected_files import check_expected_files
from server.assembly.foreign_files import (
    ForeignFilesError,
    refuse_foreign_files,
    warn_of_foreign_files,
)
from server.assembly.instance import Instance, StartError
from server.assembly.plan import as_graphviz, as_text, plan_runtime
from server.assembly.provision import ProvisionError, check_provisions
from server.events.log import PROBLEM_IDS, EventLog
from server.events.targets import LogTargetError
from server.events.targets.console import DESCRIPTORS
from server.program.announcement import announce
from server.program.banner import BANNER
from server.program.console import OutputError, put, say
from server.program.daemon import detach
from server.program.verdict import Together, print_problems, report
from server.upkeep import memory

_PROBLEM: Final = PROBLEM_IDS[Severity.WARNING]
_SWITCH_SECONDS: Final = 0.000_5
"""How long a helper thread may run Python while the engine waits, which it does after each system
call. Python's own 5 ms would be several turns."""

_DRAWINGS: Final = {"graph": as_text, "graphviz": as_graphviz}


@dataclass(frozen=True)
class Wish:
    """What is asked for; if it is nothing in particular, the configuration is run.

    Attributes:
        paths: of the configurations, of which there are several only if they are looked at.
        defines: variables given on the command line.
        check: say what is wrong with it.
        drawing: `graph` or `graphviz`: print what the instance would consist of.
        explain: print what each action does.
        dump: print it expanded.
        in_background: run as a daemon.
        set_aside: rename files of others that are where ours would be.
    """

    paths: Sequence[str]
    defines: Mapping[str, str]
    check: bool
    drawing: str | None
    explain: bool
    dump: bool
    in_background: bool
    set_aside: bool


def fulfil(wish: Wish) -> int:
    """Do it, and give the exit code.

    Raises:
        OutputError: what was asked for cannot be printed.
    """
    memory.begin()
    sys.setswitchinterval(_SWITCH_SECONDS)
    os.environ.update(wish.defines)
    together = Together()
    code = max([_fulfil(path, wish, together) for path in wish.paths])
    return max(code, together.verify()) if wish.check else code


def _fulfil(path: str, wish: Wish, together: Together) -> int:
    problems = Problems()
    document = load(path, defines=wish.defines, environ=os.environ, problems=problems)
    if document is not None and document.complete and wish.dump:
        put(document.expanded, encoding="utf-8")  # which is what its first line says
        return 0
    if document is None:
        together.lack(path)
        return report(path, problems)
    root = validate(document, problems)
    spec = compile_config(root, ProgramCatalogue(), problems)
    if spec is None:
        together.lack(path)
        return report(path, problems)
    if not (wish.check or wish.explain or wish.drawing):
        return _run(spec, document, problems, wish)
    check_provisions(spec, problems)
    check_expected_files(root, problems)
    warn_of_foreign_files(spec, problems)
    if wish.drawing and not problems.has_errors:
        put(f"{_DRAWINGS[wish.drawing](plan_runtime(spec))}\n")
    if wish.explain and not problems.has_errors:
        put(f"{explain(spec, datetime.now(local_zone()))}\n")
    together.add(path, spec)
    return report(path, problems)


def _run(spec: InstanceSpec, document: Document, problems: Problems, wish: Wish) -> int:
    with contextlib.suppress(OutputError):  # nobody has to read it
        put(f"{BANNER}\n")
    if wish.in_background:
        _warn_of_consoles(spec, problems)
    tell_starter: Callable[[str | None], None] = detach() if wish.in_background else _tell_terminal
    if spec.process_name is not None:
        setproctitle.setproctitle(spec.process_name)
    try:
        log = EventLog(spec.logging, spec.name)
    except LogTargetError as error:
        print_problems(problems, Severity.WARNING)
        tell_starter(str(error))
        return 1
    if not _reaches_terminal(log):
        print_problems(problems, Severity.WARNING)
    announce(spec, log, problems, document.expanded, sys.argv)

    def on_started() -> None:
        log.allow_rotation()
        tell_starter(None)

    try:
        refuse_foreign_files(spec, log, set_aside=wish.set_aside)
        uvloop.run(Instance(spec, log, document.files, document.expanded).run(on_started))
    except (ProvisionError, StartError) as error:
        log.emit("00-0012", reason=error)
        files = error.files if isinstance(error, ForeignFilesError) else ()
        tell_starter("\n".join((*files, str(error))))
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
                f"nobody sees {target.protocol} of a server in the background",
                "add a target of the protocol file or syslog",
            )


def _reaches_terminal(log: EventLog) -> bool:
    """Whether the log says where standard error leads what is wrong with the configuration."""
    return any(
        _PROBLEM in target.wanted and _is_standard_error(DESCRIPTORS[target.spec.protocol])
        for target in log.targets
        if target.spec.protocol in DESCRIPTORS
    )


def _is_standard_error(descriptor: int) -> bool:
    return os.path.sameopenfile(descriptor, DESCRIPTORS["stderr"])


def _tell_terminal(failure: str | None) -> None:
    if failure is not None:
        say(failure)
