"""`amps-ctl`: operates a running instance through its admin interface.

Not in AMPS, which has these operations as paths below /amps/administrator only. `server/cli/ctl/`
sends the requests; this module has the command line, and prints the results.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from config_schema.units import parse_interval
from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.admin_login import add_login_options, read_login
from server.cli.ctl.drain import cancel_drain, drain
from server.cli.ctl.execution import (
    CtlResult,
    check_path,
    execute_named,
    execute_operation,
    execute_verb,
)
from server.cli.ctl.health import (
    health_lines,
    health_status,
    read_health,
    read_state,
    state_lines,
)
from server.cli.ctl.instance import CtlEntry, CtlError, CtlInstance, CtlStatus
from server.cli.ctl.nouns import LIST, LOG_TARGETS, NOUNS, CtlNoun
from server.cli.ctl.rolling_restart import (
    RollingRestart,
    RollingRestartSettings,
    find_instances,
    is_address,
)
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.log.level_overrides import CONFIGURED_LEVEL
from server.log.levels import Level
from server.storage.sow.records import NANOSECONDS
from server.util.json_lines import json_document

_NAME: Final = "amps-ctl"
_URL: Final = "AMPS_ADMIN_URL"
_DEFAULTS: Final = {"url": None, "user": None, "password_file": None, "ca_file": None}

_Command: TypeAlias = Callable[[CtlInstance, argparse.Namespace], CtlStatus]


@command(_NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Execute a command on an instance.

    Returns:
        The exit status, see `CtlStatus`.
    """
    parser = _parser()
    options = _parse(parser, arguments)
    url = options.url or os.environ.get(_URL, "")
    if options.takes_addresses:
        url = url or next(filter(is_address, options.names), "")
    if not url:
        parser.error(f"no instance: give --url, or set {_URL}")
    try:
        login = read_login(options)
    except (OSError, ValueError) as error:
        say(f"{_NAME}: {options.password_file}: {error}")
        return CtlStatus.NO_ANSWER
    execute: _Command = options.execute
    try:
        return execute(CtlInstance(url, login), options)
    except CtlError as error:
        say(f"{_NAME}: {error}")
        return error.status


def _parse(parser: CommandLineParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; exit if it is invalid.

    argparse takes names only where they are together: those behind an option are what it leaves.
    """
    options, rest = parser.parse_known_args(arguments)
    if rest and (any(word.startswith("-") for word in rest) or not options.takes_names):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.names += rest
    return options


def _execute_noun(
    parser: CommandLineParser, noun: CtlNoun, instance: CtlInstance, options: argparse.Namespace
) -> CtlStatus:
    verb: str = options.verb
    names: list[str] = options.names
    _refuse_wrong_count(parser, noun, verb, names)
    parameters = _filter_parameters(parser, noun, options)
    if verb == LIST:
        return _print_entries(instance.list_entries(noun.path), as_json=options.json)
    if verb == "run":
        name, *words = names
        variables = [_variable(parser, word) for word in words]
        results = [execute_named(instance, noun, name, (), dict(variables))]
    elif verb == "move":
        source, target = names
        results = [execute_named(instance, noun, source, (verb,), {"to": target} | parameters)]
    elif verb == "check":
        results = [check_path(instance, name) for name in names]
    else:
        results = list(execute_verb(instance, noun, verb, names, parameters))
    return _print_results(results, as_json=options.json)


def _refuse_wrong_count(
    parser: CommandLineParser, noun: CtlNoun, verb: str, names: Sequence[str]
) -> None:
    """Exit if a verb has names that it cannot use, or lacks one."""
    takes_names = verb != LIST and (noun.metavar or verb == "check")
    if takes_names and not names:
        parser.error(f"{verb} needs a {noun.metavar or 'PATH'}")
    if verb == "move" and len(names) != len(("from", "to")):
        parser.error(f"{verb} needs QUEUE and TARGET")
    if names and not takes_names:
        parser.error(f"{verb} takes no names: {' '.join(names)}")


def _filter_parameters(
    parser: CommandLineParser, noun: CtlNoun, options: argparse.Namespace
) -> dict[str, str]:
    """Return the parameters of an operation for `--filter`; exit if the verb has no filter.

    An empty filter, as of an unset variable of a shell, must not stand for all messages.
    """
    if options.filter is None:
        return {}
    verb = noun.verbs.get(options.verb)
    if verb is None or not verb.has_filter:
        parser.error(f"{options.verb} has no --filter")
    if not options.filter.strip():
        parser.error("--filter is empty: leave it out for all messages")
    return {"filter": options.filter}


def _variable(parser: CommandLineParser, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        parser.error(f"{word} is no variable: expected NAME=VALUE")
    return name, value


def _print_entries(entries: Sequence[CtlEntry], *, as_json: bool) -> CtlStatus:
    if as_json:
        write_out([json_document({"entries": [entry._asdict() for entry in entries]})])
    else:
        _put(
            "  ".join(filter(None, (entry.id, entry.name, entry.description))) for entry in entries
        )
    return CtlStatus.DONE


def _print_results(results: Sequence[CtlResult], *, as_json: bool) -> CtlStatus:
    """Print results; print errors on standard error, and return the gravest status."""
    if as_json:
        write_out([json_document({"results": [result.as_data() for result in results]})])
    else:
        _put(result.text for result in results if result.status is CtlStatus.DONE)
    for result in results:
        if result.status is not CtlStatus.DONE:
            say(f"{_NAME}: {f'{result.id}: ' if result.id else ''}{result.text}")
    return max(result.status for result in results)


def _health(instance: CtlInstance, options: argparse.Namespace) -> CtlStatus:
    health = read_health(instance, options.replication)
    if options.json:
        write_out([json_document(health)])
    else:
        _put(health_lines(health))
    return health_status(health)


def _status(instance: CtlInstance, options: argparse.Namespace) -> CtlStatus:
    health = read_health(instance, options.replication)
    state = read_state(instance)
    if options.json:
        write_out([json_document({**state, **health})])
    else:
        _put([*state_lines(state), *health_lines(health)])
    return health_status(health)


def _log_level(instance: CtlInstance, options: argparse.Namespace) -> CtlStatus:
    parameters = {"level": options.level, "for": options.duration, "message": options.message}
    result = execute_named(instance, LOG_TARGETS, options.target, ("level",), parameters)
    return _print_results([result], as_json=options.json)


def _drain(instance: CtlInstance, options: argparse.Namespace) -> CtlStatus:
    if options.cancel:
        return _print_results([cancel_drain(instance)], as_json=options.json)
    show = partial(_put_progress, as_json=options.json)
    result = drain(instance, options.timeout, is_forced=options.force, show=show)
    return _print_results([result], as_json=options.json)


def _reload(instance: CtlInstance, options: argparse.Namespace) -> CtlStatus:
    operation = "plan" if options.dry_run else "apply"
    result = execute_operation(instance, ("reload", "configuration", operation))
    return _print_results([result], as_json=options.json)


def _rolling_restart(
    parser: CommandLineParser, instance: CtlInstance, options: argparse.Namespace
) -> CtlStatus:
    if not options.names:
        parser.error("rolling-restart needs an INSTANCE")
    settings = RollingRestartSettings(
        options.restart_command, options.drain_timeout, options.timeout, options.replication
    )
    show = partial(_put_progress, as_json=options.json)
    instances, others = find_instances(options.names, instance.url, read_login(options))
    results = list(RollingRestart(instances, others, settings, show).run())
    return _print_results(results, as_json=options.json)


def _put_progress(line: str, *, as_json: bool) -> None:
    """Print a line of progress, apart from a JSON object."""
    if as_json:
        say(line)
    else:
        _put([line])


def _put(lines: Iterable[str]) -> None:
    write_out(f"{line}\n".encode(errors="backslashreplace") for line in lines)


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME,
        "Operate a running instance through its admin interface.",
        as_json="print a JSON object",
        epilog="Exit status: 0 done, 1 refused or failed, 2 invalid command line, 3 not ready,"
        " 4 no answer or no logon, 5 the request was sent and its result is unknown.",
    )
    parser.set_defaults(**_DEFAULTS, names=[], takes_names=False, takes_addresses=False)
    _add_connection_options(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, execute, help_text in (
        ("status", _status, "show the instance, its transports, destinations, queues and health"),
        ("health", _health, "show whether it works, and whether it is ready for clients"),
    ):
        _add_replication_option(_add_command(commands, name, execute, help_text))
    _add_log_level(commands)
    _add_drain(commands)
    _add_reload(commands)
    _add_rolling_restart(commands)
    for name, noun in NOUNS.items():
        _add_noun(commands, name, noun)
    return parser


def _add_noun(
    commands: argparse._SubParsersAction[CommandLineParser], name: str, noun: CtlNoun
) -> None:
    verbs = {LIST: "list them"} if noun.metavar else {}
    verbs |= {verb: details.help for verb, details in noun.verbs.items()}
    parser = _add_command(
        commands, name, None, f"operate {noun.help}: {', '.join(noun.verb_names)}"
    )
    parser.set_defaults(execute=partial(_execute_noun, parser, noun), filter=None)
    listed = "; ".join(f"{verb}: {text}" for verb, text in verbs.items())
    parser.add_argument("verb", metavar="VERB", choices=noun.verb_names, help=listed)
    metavar = noun.metavar or ("PATH" if "check" in verbs else "")
    if metavar:
        text = "ids or names, as list shows them" if noun.metavar else "a path of the interface"
        parser.add_argument("names", metavar=metavar, nargs="*", help=text)
    parser.set_defaults(takes_names=bool(metavar))
    if verbs_with_filter := [verb for verb, details in noun.verbs.items() if details.has_filter]:
        text = f"for {', '.join(verbs_with_filter)}: only the messages that match"
        parser.add_argument("--filter", metavar="FILTER", help=text)


def _add_log_level(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    parser = _add_command(
        commands, "log-level", _log_level, "set the level of a log target for a time"
    )
    add = parser.add_argument
    add("target", metavar="TARGET", help="its number in the configuration, or its name")
    add(
        "level",
        metavar="LEVEL",
        choices=(*(level.label for level in Level), CONFIGURED_LEVEL),
        help=f"the lowest level that it writes, or {CONFIGURED_LEVEL} to end an earlier command",
    )
    add("--for", dest="duration", metavar="TIME", default="10m", help="such as 30s or 1h (10m)")
    add("--message", metavar="REGEX", default="", help="for messages with matching ids only")


def _add_drain(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    parser = _add_command(
        commands, "drain", _drain, "stop the instance once clients and destinations have all"
    )
    add = parser.add_argument
    add("--timeout", metavar="TIME", default="60s", help="such as 60s or 5m (60s)")
    add("--force", action="store_true", default=False, help="stop after that time in any case")
    add("--cancel", action="store_true", default=False, help="end a drain: the instance serves")


def _add_reload(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    parser = _add_command(
        commands, "reload", _reload, "apply changes of the configuration file, all or none"
    )
    text = "show the differences, and apply nothing"
    parser.add_argument("--dry-run", action="store_true", default=False, help=text)


def _add_rolling_restart(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    help_text = "restart instances of a mesh one after the other, and stop at the first failure"
    parser = _add_command(commands, "rolling-restart", None, help_text)
    parser.set_defaults(
        execute=partial(_rolling_restart, parser), takes_names=True, takes_addresses=True
    )
    add = parser.add_argument
    names = "names in the mesh, or addresses of admin interfaces"
    add("names", metavar="INSTANCE", nargs="*", help=names)
    add(
        "--restart-command",
        metavar="COMMAND",
        default="",
        help="starts the instance AMPS_INSTANCE again; without it, a supervisor has to",
    )
    add("--drain-timeout", metavar="TIME", default="60s", help="such as 60s or 5m (60s)")
    text = "how long an instance may take to start and to catch up (5m)"
    add("--timeout", metavar="TIME", type=_seconds, default=300.0, help=text)
    _add_replication_option(parser, default="all")


def _seconds(text: str) -> float:
    """Return an interval in seconds, or refuse the argument."""
    try:
        return parse_interval(text) / NANOSECONDS
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_command(
    commands: argparse._SubParsersAction[CommandLineParser],
    name: str,
    execute: _Command | None,
    help_text: str,
) -> CommandLineParser:
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        argument_default=argparse.SUPPRESS,
    )
    parser.set_defaults(execute=execute)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    _add_connection_options(parser)
    return parser


def _add_connection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", help=f"the admin interface, such as http://localhost:8085; {_URL} if not given"
    )
    add_login_options(parser)


def _add_replication_option(parser: argparse.ArgumentParser, default: str = "sync") -> None:
    parser.add_argument(
        "--replication",
        choices=("sync", "all"),
        default=default,
        help=f"the destinations that have to be connected and up to date ({default})",
    )


if __name__ == "__main__":
    sys.exit(main())
