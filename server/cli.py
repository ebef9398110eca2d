"""ampServer: check a configuration, or run it.

Source: AMPS User Guide, Starting AMPS: Command Line Options.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import setproctitle
import uvloop

from config_schema.compile import compile_config
from config_schema.document import Document, load
from config_schema.problems import Problems, Severity
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from config_schema.version import AMPS_VERSION, VERSION
from server.catalogue import ProgramCatalogue
from server.daemon import detach
from server.events.log import EventLog
from server.events.targets import LogTargetError
from server.instance import Instance, StartError, announce
from server.plan import as_graphviz, as_text, plan_runtime
from server.provision import ProvisionError

_BANNER: Final = f"Amperage {VERSION} - runs configurations written for AMPS {AMPS_VERSION}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 for success and a clean stop, 1 for a configuration or start that failed.
    """
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    for word in unknown:
        print(f"ampServer: {word} is no option of this server and is ignored", file=sys.stderr)
    if options.help:
        parser.print_help(sys.stderr)
    elif options.version:
        print(_BANNER)
    elif options.sample_config:
        print(resources.files("server").joinpath("sample_config.xml").read_text(), end="")
    elif options.config is None:
        parser.print_usage(sys.stderr)
        print("ampServer: expected the path of a configuration file", file=sys.stderr)
        return 1
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
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.xml", help="the configuration file")
    add = parser.add_argument
    add("--verify-config", action="store_true", help="check the configuration, then exit")
    add(
        "--graph",
        action="store_const",
        const=as_text,
        help="with --verify-config: print what the instance would consist of, in start order",
    )
    add(
        "--graphviz",
        dest="graph",
        action="store_const",
        const=as_graphviz,
        help="the same for Graphviz",
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


@dataclass(frozen=True, slots=True)
class _Configuration:
    document: Document
    spec: InstanceSpec | None
    problems: Problems


def _with_configuration(options: argparse.Namespace) -> int:
    defines = dict(_definition(text) for text in options.defines)
    os.environ.update(defines)
    problems = Problems()
    document = load(options.config, defines=defines, environ=os.environ, problems=problems)
    if document is not None and options.dump_config:
        print(document.expanded)
        return 0
    if document is None:
        return _report(options.config, problems)
    root = validate(document, problems)
    spec = compile_config(root, ProgramCatalogue(), problems)
    if spec is None or problems.has_errors:
        return _report(options.config, problems)
    if options.verify_config:
        if options.graph is not None:
            print(options.graph(plan_runtime(spec)))
        return _report(options.config, problems)
    return _run(spec, document, problems, in_background=options.daemon)


def _definition(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _report(path: str, problems: Problems) -> int:
    """Print what was found in a configuration, and the verdict."""
    _print_problems(problems, Severity.ERROR, Severity.WARNING, Severity.INFO)
    errors = _count(problems, Severity.ERROR)
    verdict = "cannot be used" if errors else "is valid"
    warnings = _count(problems, Severity.WARNING)
    counts = f"{_plural(errors, 'error')}, {_plural(warnings, 'warning')}"
    print(f"{path} {verdict}: {counts}", file=sys.stderr)
    return 1 if errors else 0


def _print_problems(problems: Problems, *severities: Severity) -> None:
    for problem in problems:
        if problem.severity in severities:
            print(problem, file=sys.stderr)


def _count(problems: Problems, severity: Severity) -> int:
    return sum(problem.severity is severity for problem in problems)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _run(spec: InstanceSpec, document: Document, problems: Problems, *, in_background: bool) -> int:
    print(_BANNER, flush=True)
    _print_problems(problems, Severity.WARNING)
    tell_starter: Callable[[str | None], None] = detach() if in_background else _tell_terminal
    if spec.process_name is not None:
        setproctitle.setproctitle(spec.process_name)
    try:
        log = EventLog(spec.logging, spec.name)
    except LogTargetError as error:
        tell_starter(str(error))
        return 1
    announce(spec, log, problems, document.expanded)
    try:
        uvloop.run(Instance(spec, log).run(on_started=lambda: tell_starter(None)))
    except (ProvisionError, StartError) as error:
        log.emit("00-0012", reason=error)
        tell_starter(str(error))
        return 1
    finally:
        log.close()
    return 0


def _tell_terminal(failure: str | None) -> None:
    if failure is not None:
        print(failure, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
