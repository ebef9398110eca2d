"""ampServer: check a configuration, or run it.

Source: AMPS User Guide, Starting AMPS: Command Line Options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from importlib import resources
from typing import Final

from server.program.banner import BANNER
from server.program.console import OutputError, occupy_standard_streams, put, say

_INTERRUPTED: Final = 130
_MISTYPED: Final = 0.8
"""How alike an unknown option and a known one must be to be taken for the same."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 for success and a clean stop, 1 for a configuration or start that failed,
        130 when interrupted before anything ran.
    """
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
        if word.startswith("-"):
            _pass_over(word, parser)
        else:
            options.configs.append(word)  # of several, those that stand behind an option
    if options.help:
        say(parser.format_help().rstrip())
    elif options.version:
        put(f"{BANNER}\n")
    elif options.sample_config:
        put(resources.files("server.program").joinpath("sample_config.xml").read_text("utf-8"))
    elif not any(options.configs):
        say(parser.format_usage().rstrip())
        raise _UsageError("expected the path of a configuration file")
    else:
        return _fulfil(options)
    return 0


def _pass_over(word: str, parser: _Parser) -> None:
    """Ignore an option that is not known, as AMPS does, unless it is a known one mistyped.

    Raises:
        _UsageError: it is: `--verfy-config` must not start the instance.
    """
    # Reading it takes most of a second, because it has the schema beside it.
    from config_schema.suggest import nearest

    known = {name.lstrip("-"): name for name in parser.option_names if name.startswith("--")}
    meant = nearest(word.partition("=")[0].lstrip("-"), known, _MISTYPED)
    if meant is not None:
        raise _UsageError(f"{word} is no option; did you mean {known[meant]}?")
    say(f"ampServer: {word} is no option of this server and is ignored")


class _Parser(argparse.ArgumentParser):
    """Knows the names of its options."""

    @property
    def option_names(self) -> Collection[str]:
        """As they are typed."""
        return self._option_string_actions


def _parser() -> _Parser:
    parser = _Parser(
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
        metavar="CONFIG.xml",
        help="the configuration file; several can be checked at once",
    )
    add = parser.add_argument
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
    add("--dump-config", action="store_true", help="print the configuration expanded, then exit")
    add("--sample-config", action="store_true", help="print a minimal configuration, then exit")
    add("--version", action="store_true", help="print the version, then exit")
    add("--help", "-h", action="store_true", help="print this text, then exit")
    add(
        "--set-aside-foreign-files",
        action="store_true",
        help="before the start, rename files of other programs that have the names of journals or"
        " SOW files of the configuration, such as AMPS's own, to NAME.foreign-1",
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
    return parser


def _fulfil(options: argparse.Namespace) -> int:
    checks = options.verify_config or options.drawing or options.explain_actions
    if len(options.configs) > 1 and (options.dump_config or not checks):
        raise _UsageError(f"expected one configuration file, and {options.configs[1]} is another")
    defines = dict(map(_definition, options.defines))
    # All of the server is read only now, a second of work, which no other option waits for.
    from server.program.launch import Wish, fulfil

    return fulfil(
        Wish(
            paths=options.configs,
            defines=defines,
            check=options.verify_config,
            drawing=options.drawing,
            explain=options.explain_actions,
            dump=options.dump_config,
            in_background=options.daemon,
            set_aside=options.set_aside_foreign_files,
        )
    )


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _UsageError(f"-D{text} is no definition: expected -DNAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
