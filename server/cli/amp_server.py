"""ampServer: check a configuration, or run it.

Source: AMPS User Guide, Starting AMPS: Command Line Options.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import resources
from typing import Final

from config_schema.version import BANNER
from server.app.command_line import WRONG_USAGE, CommandLineParser, CompletionAction, file_name
from server.app.stdio import OutputError, mute_standard_output, open_standard_streams, put, say

_INTERRUPTED: Final = 130
_DIFF_FAILED: Final = 2
_OLD_AND_NEW: Final = 2
_FILE_AND_ELEMENT: Final = 2
_PRINTING_JSON: Final = {"--verify-config", "--explain-access", "--explain", "--diff"}
_MIN_SIMILARITY: Final = 0.8
"""The similarity from which on an unknown option is taken for a mistyped known one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 for success and a clean stop, 1 for a configuration or start that failed, 2
        for an invalid command line, 130 when interrupted before anything ran. With --diff that of
        diff(1): 1 if the configurations differ, 2 for any failure.
    """
    open_standard_streams()
    _use_utf8()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _execute(words)
    except _UsageError as error:
        say(f"ampServer: {error}")
        return WRONG_USAGE
    except OutputError as error:
        say(f"ampServer: {error}")
        return _DIFF_FAILED if "--diff" in words else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _use_utf8() -> None:
    """Execute the program again with UTF-8 file names, if the locale has another encoding."""
    if sys.getfilesystemencoding().lower() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself


class _UsageError(Exception):
    """The command line is invalid."""


def _execute(arguments: Sequence[str]) -> int:
    parser = _parser()
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise _UsageError(f"{error}; see ampServer --help") from None
    except BrokenPipeError:  # while the completion script is printed
        mute_standard_output()
        return 0
    except OSError as error:
        mute_standard_output()
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None
    options.configs += options.named_configs
    for argument in unknown:
        if argument.startswith("-"):
            _ignore_option(argument, parser)
        else:
            options.configs.append(argument)  # argparse leaves those behind an option as unknown
    if options.help:
        say(parser.format_help().rstrip())
    elif options.version:
        put(f"{BANNER}\n")
    elif options.sample_config:
        put(resources.files("server.app").joinpath("sample_config.xml").read_text("utf-8"))
    elif options.schema:
        from config_schema.editors import schema_text

        put(schema_text(options.schema), encoding="utf-8")
    elif not any(options.configs):
        raise _UsageError("expected the path of a configuration file; see ampServer --help")
    else:
        return _run_invocation(options)
    return 0


def _ignore_option(option: str, parser: _OptionNameParser) -> None:
    """Ignore an unknown option, as AMPS does, unless it is a mistyped known one.

    Raises:
        _UsageError: it is mistyped: `--verfy-config` must not start the instance.
    """
    # Imported only here: it imports the schema, which takes most of a second.
    from config_schema.suggest import nearest

    known = {name.lstrip("-"): name for name in parser.option_names if name.startswith("--")}
    meant = nearest(option.partition("=")[0].lstrip("-"), known, _MIN_SIMILARITY)
    if meant is not None:
        raise _UsageError(f"{option} is no option; did you mean {known[meant]}?")
    say(f"ampServer: {option} is no option of this server and is ignored")


class _OptionNameParser(CommandLineParser):
    """A parser that provides the names of its options."""

    @property
    def option_names(self) -> Collection[str]:
        """The names of all options, with their dashes."""
        return self._option_string_actions


def _parser() -> _OptionNameParser:
    parser = _OptionNameParser(
        "ampServer",
        usage="ampServer [options] CONFIG.xml ...",
        description="A message server that runs AMPS configurations.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument(
        "configs",
        nargs="*",
        type=file_name,
        metavar="CONFIG.xml",
        help="the configuration file; several can be checked at once",
    )
    _add_check_options(parser.add_argument)
    _add_print_options(parser.add_argument)
    _add_start_options(parser.add_argument)
    return parser


def _add_check_options(add: Callable[..., object]) -> None:
    """Add the options that check or explain configurations."""
    add(
        "--verify-config",
        action="store_true",
        help="check the configuration, and several against each other as instances that replicate"
        " would when they connect, then exit",
    )
    add(
        "--graph",
        dest="drawing",
        action="store_const",
        const="graph",
        help="check, and print what the instance would consist of, in start order",
    )
    add(
        "--graphviz",
        dest="drawing",
        action="store_const",
        const="graphviz",
        help="the same for Graphviz",
    )
    add(
        "--explain-actions",
        action="store_true",
        help="check, and print what each action does, and when its schedules fire next",
    )
    add(
        "--explain-access",
        metavar="USER",
        help="check, and print what a user may do on each transport, and why, then exit",
    )
    add(
        "--topic",
        dest="topics",
        metavar="TOPIC",
        action="append",
        default=[],
        help="with --explain-access: a topic besides those of the configuration",
    )
    add(
        "--path",
        dest="admin_paths",
        metavar="PATH",
        action="append",
        default=[],
        help="the same for a path of the admin interface, such as /amps/instance/clients",
    )
    add(
        "--explain",
        action="store_true",
        help="FILE ELEMENT ...: print what elements do, what they may be, and what they are in the"
        " file; an element is a name, a path or a line",
    )
    add(
        "--diff",
        action="store_true",
        help="OLD NEW [PEER ...]: print what would change if the instance were started with another"
        " configuration, and what that means, also for instances that it replicates with; the exit"
        " code is 0 if nothing would, 1 if something would, 2 if that cannot be told",
    )
    add(
        "--json",
        action="store_true",
        help="with --verify-config, --explain-access, --explain or --diff: print JSON objects",
    )
    add(
        "--config",
        dest="named_configs",
        type=file_name,
        metavar="CONFIG.xml",
        action="append",
        default=[],
        help="another way to name the configuration file",
    )


def _add_print_options(add: Callable[..., object]) -> None:
    """Add the options that print something, and exit."""
    add("--dump-config", action="store_true", help="print the configuration expanded, then exit")
    add("--sample-config", action="store_true", help="print a minimal configuration, then exit")
    add(
        "--print-schema",
        dest="schema",
        nargs="?",
        const="xsd",
        choices=("xsd", "rnc"),
        help="print a schema for editors, then exit: XSD 1.0, or RELAX NG in compact syntax (rnc)",
    )
    add("--print-completion", action=CompletionAction)
    add("--version", action="store_true", help="print the version, then exit")
    add("--help", "-h", action="store_true", help="print this text, then exit")


def _add_start_options(add: Callable[..., object]) -> None:
    """Add the options of a start."""
    add(
        "--set-aside-foreign-files",
        action="store_true",
        help="before the start, rename files of other programs that have the names of journals or"
        " SOW files of the configuration, such as AMPS's own, to NAME.foreign-1",
    )
    add(
        "--reload-on-sighup",
        action="store_true",
        help="on SIGHUP, read the configuration file again and apply all differences or none, as"
        " amps-ctl reload; without this option, SIGHUP stops the instance",
    )
    add("--daemon", action="store_true", help="run in the background")
    add(
        "-D",
        dest="defines",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set an environment variable; ${NAME} in the configuration expands to it",
    )


def _run_invocation(options: argparse.Namespace) -> int:
    modes = [name for name, is_given in _modes(options).items() if is_given]
    _refuse_exclusive_options(options, modes)
    defines = dict(map(_definition, options.defines))
    if options.diff:
        return _diff(options, defines)
    if options.explain:
        return _explain(options, defines)
    checks = bool(set(modes) - {"--dump-config"})
    if len(options.configs) > 1 and (options.dump_config or not checks):
        raise _UsageError(f"expected one configuration file, and {options.configs[1]} is another")
    # The whole server is imported only here: it takes a second, which no other option needs.
    from server.app.launch import Invocation, run_invocation

    return run_invocation(
        Invocation(
            paths=options.configs,
            defines=defines,
            checks_configuration=options.verify_config,
            graph_format=options.drawing,
            explains_actions=options.explain_actions,
            user=options.explain_access,
            topics=options.topics,
            admin_paths=options.admin_paths,
            as_json=options.json,
            dumps_configuration=options.dump_config,
            is_daemon=options.daemon,
            renames_foreign_files=options.set_aside_foreign_files,
            reloads_on_sighup=options.reload_on_sighup,
        )
    )


def _modes(options: argparse.Namespace) -> Mapping[str, object]:
    """Return the options that replace running the instance, each with whether it is given."""
    return {
        "--diff": options.diff,
        "--explain": options.explain,
        "--verify-config": options.verify_config,
        "--graph": options.drawing == "graph",
        "--graphviz": options.drawing == "graphviz",
        "--explain-actions": options.explain_actions,
        "--explain-access": options.explain_access is not None,
        "--dump-config": options.dump_config,
    }


def _refuse_exclusive_options(options: argparse.Namespace, modes: Sequence[str]) -> None:
    """Refuse options that exclude each other.

    Raises:
        _UsageError: some do.
    """
    if modes[1:] and modes[0] in ("--diff", "--explain"):
        raise _UsageError(f"{modes[0]} and {modes[1]} exclude each other")
    if (options.topics or options.admin_paths) and options.explain_access is None:
        raise _UsageError("--topic and --path go with --explain-access USER")
    if options.json and not _PRINTING_JSON & set(modes):
        raise _UsageError(
            "--json goes with --verify-config, --explain-access USER, --explain or --diff"
        )
    starting = {
        "--daemon": options.daemon,
        "--set-aside-foreign-files": options.set_aside_foreign_files,
        "--reload-on-sighup": options.reload_on_sighup,
    }
    for name, is_given in starting.items():
        if is_given and modes[:1] in (["--diff"], ["--explain"]):
            raise _UsageError(f"{modes[0]} and {name} exclude each other: nothing is started")


def _diff(options: argparse.Namespace, defines: Mapping[str, str]) -> int:
    if len(options.configs) < _OLD_AND_NEW:
        raise _UsageError("--diff takes two configurations, the one in use and the one to compare")
    from server.app.diff import show_differences

    return show_differences(options.configs, defines, as_json=options.json)


def _explain(options: argparse.Namespace, defines: Mapping[str, str]) -> int:
    if len(options.configs) < _FILE_AND_ELEMENT:
        raise _UsageError("--explain takes a configuration and elements: --explain FILE ELEMENT")
    from server.app.explain import explain_elements

    path, *names = options.configs
    return explain_elements(path, names, defines, as_json=options.json)


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _UsageError(f"-D{text} is no definition: expected -DNAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
