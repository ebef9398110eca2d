"""`amps-service`: installs the server as a service of the machine, and removes that again.

`install-amps-daemon.sh` and `uninstall-amps-daemon.sh` call it.

Source: AMPS User Guide, Running AMPS as a Linux Service.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.cli.service.installer import (
    InstallTarget,
    ServiceError,
    detect_init,
    install,
    uninstall,
)
from server.util.json_lines import json_line

_NAME: Final = "amps-service"
_COMMANDS: Final = {"install": install, "uninstall": uninstall}


@command(_NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Install or remove the service.

    Returns:
        The exit status: 0, or 1 if that cannot be done.
    """
    options = _parser().parse_args(arguments)
    root = options.root.absolute()
    machine = InstallTarget(root, options.user, options.init or detect_init(root))
    if machine.is_running and os.geteuid() != 0:
        say(f"{_NAME}: only root can {options.what} a service: run it with sudo")
        return 1
    try:
        for step in _COMMANDS[options.what](machine):
            if options.json:
                write_out([json_line({step.kind: step.text})])
            else:
                print(step)
    except ServiceError as error:
        say(f"{_NAME}: {error}")
        return 1
    return 0


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME,
        "Install the server as a service of this machine, or remove that again.",
        as_json="print a JSON object for each thing that is done or to be done, and each warning",
        epilog="Configurations and data are never removed.",
    )
    parser.add_argument("what", choices=_COMMANDS)
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIRECTORY",
        help="an image of a machine, instead of this one; nothing is started or registered",
    )
    parser.add_argument("--user", default="amps", help="whom the service runs as (amps)")
    parser.add_argument(
        "--init", choices=("systemd", "sysv"), help="the init system, if not the one that is found"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
