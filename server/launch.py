"""What ampServer does with a configuration: check it, show it, or run it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
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
from server import memory
from server.announcement import announce
from server.banner import BANNER
from server.catalogue import ProgramCatalogue
from server.console import OutputError, put, say
from server.daemon import detach
from server.events.log import EventLog
from server.events.targets import LogTargetError
from server.foreign_files import (
    ForeignFilesError,
    refuse_foreign_files,
    warn_of_foreign_files,
)
from server.instance import Instance, StartError
from server.plan import as_graphviz, as_text, plan_runtime
from server.provision import ProvisionError, check_provisions

_DRAWINGS: Final = {"graph": as_text, "graphviz": as_graphviz}


@dataclass(frozen=True)
class Wish:
    """What is asked for; if it is nothing in particular, the configuration is run.

    Attributes:
        path: of the configuration.
        defines: variables given on the command line.
        check: say what is wrong with it.
        drawing: `graph` or `graphviz`: print what the instance would consist of.
        explain: print what each action does.
        dump: print it expanded.
        in_background: run as a daemon.
        set_aside: rename files of others that are where ours would be.
    """

    path: str
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
    os.environ.update(wish.defines)
    problems = Problems()
    document = load(wish.path, defines=wish.defines, environ=os.environ, problems=problems)
    if document is not None and document.complete and wish.dump:
        put(document.expanded, encoding="utf-8")  # which is what its first line says
        return 0
    spec = None if document is None else _compile(document, problems)
    if document is None or spec is None:
        return _report(wish.path, problems)
    if not (wish.check or wish.explain or wish.drawing):
        return _run(spec, document, problems, wish)
    check_provisions(spec, problems)
    warn_of_foreign_files(spec, problems)
    if wish.drawing and not problems.has_errors:
        put(f"{_DRAWINGS[wish.drawing](plan_runtime(spec))}\n")
    if wish.explain and not problems.has_errors:
        put(f"{explain(spec, datetime.now(local_zone()))}\n")
    return _report(wish.path, problems)


def _compile(document: Document, problems: Problems) -> InstanceSpec | None:
    return compile_config(validate(document, problems), ProgramCatalogue(), problems)


def _report(path: str, problems: Problems) -> int:
    """Print what was found in a configuration, and the verdict."""
    _print_problems(problems, Severity.ERROR, Severity.WARNING, Severity.INFO)
    errors = _count(problems, Severity.ERROR)
    verdict = "cannot be used" if errors else "is valid"
    warnings = _count(problems, Severity.WARNING)
    counts = f"{_plural(errors, 'error')}, {_plural(warnings, 'warning')}"
    say(f"{path} {verdict}: {counts}")
    return 1 if errors else 0


def _print_problems(problems: Problems, *severities: Severity) -> None:
    for problem in problems:
        if problem.severity in severities:
            say(str(problem))


def _count(problems: Problems, severity: Severity) -> int:
    return sum(problem.severity is severity for problem in problems)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _run(spec: InstanceSpec, document: Document, problems: Problems, wish: Wish) -> int:
    with contextlib.suppress(OutputError):  # nobody has to read it
        put(f"{BANNER}\n")
    _print_problems(problems, Severity.WARNING)
    tell_starter: Callable[[str | None], None] = detach() if wish.in_background else _tell_terminal
    if spec.process_name is not None:
        setproctitle.setproctitle(spec.process_name)
    try:
        log = EventLog(spec.logging, spec.name)
    except LogTargetError as error:
        tell_starter(str(error))
        return 1
    announce(spec, log, problems, document.expanded, sys.argv)
    try:
        refuse_foreign_files(spec, log, set_aside=wish.set_aside)
        uvloop.run(Instance(spec, log, document.files).run(on_started=lambda: tell_starter(None)))
    except (ProvisionError, StartError) as error:
        log.emit("00-0012", reason=error)
        files = error.files if isinstance(error, ForeignFilesError) else ()
        tell_starter("\n".join((*files, str(error))))
        return 1
    finally:
        log.close()
    return 0


def _tell_terminal(failure: str | None) -> None:
    if failure is not None:
        say(failure)
