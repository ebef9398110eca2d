"""ampServer: check a configuration, or run it.

Source: AMPS User Guide, Starting AMPS: Command Line Options.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import resources
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
from config_schema.version import AMPS_VERSION, VERSION
from server import memory
from server.announcement import announce
from server.catalogue import ProgramCatalogue
from server.console import OutputError, occupy_standard_streams, put, say
from server.daemon import detach
from server.events.log import EventLog
from server.events.targets import LogTargetError
from server.instance import Instance, StartError
from server.plan import as_graphviz, as_text, plan_runtime
from server.provision import ProvisionError, check_provisions

_BANNER: Final = f"Amperage {VERSION} - runs configurations written for AMPS {AMPS_VERSION}"
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 for success and a clean stop, 1 for a configuration or start that failed,
        130 when interrupted before anything ran.
    """
    memory.begin()
    occupy_standard_streams()
    try:
        return _obey(sys.argv[1:] if arguments is None else arguments)
    except (OutputError, _UsageError) as error:
        say(f"ampServer: {error}")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


class _UsageError(Exception):
    """The command line cannot be understood."""


def _obey(arguments: Sequence[str]) -> int:
    parser = _parser()
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise _UsageError(f"{error}; see ampServer --help") from None
    for word in unknown:
        what = "is no option of this server" if word.startswith("-") else "is one file too many"
        say(f"ampServer: {word} {what} and is ignored")
    if options.help:
        say(parser.format_help().rstrip())
    elif options.version:
        put(f"{_BANNER}\n")
    elif options.sample_config:
        put(resources.files("server").joinpath("sample_config.xml").read_text("utf-8"))
    elif not options.config:
        say(parser.format_usage().rstrip())
        raise _UsageError("expected the path of a configuration file")
    else:
        return _with_configuration(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "ampServer",
        usage="ampServer [options] CONFIG.xml",
        description="A message server that runs AMPS configurations.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.xml", help="the configuration file")
    add = parser.add_argument
    add("--verify-config", action="store_true", help="check the configuration, then exit")
    add(
        "--graph",
        action="store_const",
        const=as_text,
        help="check, and print what the instance would consist of, in start order",
    )
    add(
        "--graphviz",
        dest="graph",
        action="store_const",
        const=as_graphviz,
        help="the same for Graphviz",
    )
    add(
        "--explain-actions",
        action="store_true",
        help="check, and print what each action does, and when its schedules fire next",
    )
    add("--dump-config", action="store_true", help="print the configuration expanded, then exit")
    add("--sample-config", action="store_true", help="print a minimal configuration, then exit")
    add("--version", action="store_true", help="print the version, then exit")
    add("--help", action="store_true", help="print this text, then exit")
    add("--daemon", action="store_true", help="run in the background")
    add(
        "-D",
        dest="defines",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set an environment variable; ${NAME} in the configuration expands to it",
    )
    return parser


def _with_configuration(options: argparse.Namespace) -> int:
    defines = dict(map(_definition, options.defines))
    os.environ.update(defines)
    problems = Problems()
    document = load(options.config, defines=defines, environ=os.environ, problems=problems)
    if document is not None and document.complete and options.dump_config:
        put(document.expanded, encoding="utf-8")  # which is what its first line says
        return 0
    spec = None if document is None else _compile(document, problems)
    if document is None or spec is None:
        return _report(options.config, problems)
    if not (options.verify_config or options.explain_actions or options.graph is not None):
        return _run(spec, document, problems, in_background=options.daemon)
    check_provisions(spec, problems)
    if options.graph is not None and not problems.has_errors:
        put(f"{options.graph(plan_runtime(spec))}\n")
    if options.explain_actions and not problems.has_errors:
        put(f"{explain(spec, datetime.now(local_zone()))}\n")
    return _report(options.config, problems)


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _UsageError(f"-D{text} is no definition: expected -DNAME=VALUE")
    return name, value


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


def _run(spec: InstanceSpec, document: Document, problems: Problems, *, in_background: bool) -> int:
    with contextlib.suppress(OutputError):  # nobody has to read it
        put(f"{_BANNER}\n")
    _print_problems(problems, Severity.WARNING)
    tell_starter: Callable[[str | None], None] = detach() if in_background else _tell_terminal
    if spec.process_name is not None:
        setproctitle.setproctitle(spec.process_name)
    try:
        log = EventLog(spec.logging, spec.name)
    except LogTargetError as error:
        tell_starter(str(error))
        return 1
    announce(spec, log, problems, document.expanded, sys.argv)
    try:
        uvloop.run(Instance(spec, log, document.files).run(on_started=lambda: tell_starter(None)))
    except (ProvisionError, StartError) as error:
        log.emit("00-0012", reason=error)
        tell_starter(str(error))
        return 1
    finally:
        log.close()
    return 0


def _tell_terminal(failure: str | None) -> None:
    if failure is not None:
        say(failure)


if __name__ == "__main__":
    sys.exit(main())
