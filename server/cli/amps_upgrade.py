"""`amps_upgrade`: checks whether the files of an instance can be used as they are.

Files of all versions of this server are read by all later ones, so that there is nothing to do.
Files of AMPS itself cannot be read, nor those of a later version: the command lists these files,
and changes nothing. docs/upgrading.md has the rest.

Source: AMPS User Guide, Obsolete Utility: Upgrade File Formats.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.app.check_report import report
from server.app.command_line import CommandLineParser, directory, make_parser
from server.app.stdio import say
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.foreign_files import OPTION, ForeignFile, find_foreign_files
from server.app.wiring.provision import ProvisionError
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.storage.journal.recovery.foreign_files import ForeignJournalKind
from server.util.json_lines import json_document

_NAME: Final = "amps_upgrade"


@command(_NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files of an instance.

    Returns:
        The exit status: 0 if all files can be used, 1 if not, or if they cannot be checked.
    """
    options = _parser().parse_args(arguments)
    config = options.config.absolute()
    os.chdir(options.work_dir if options.base is None else options.base)
    spec = _configured(str(config))
    if spec is None:
        return 1
    try:
        files = find_foreign_files(spec)
    except ProvisionError as error:
        say(f"{_NAME}: {error}")
        return 1
    if options.json:
        write_out([_report(spec.name, files)])
    else:
        for file in files:
            print(f"{file.config_element.location}: {file.path} {file.description}")
    if not files:
        if not options.json:
            print(f"{spec.name}: all files can be used as they are; there is nothing to upgrade")
        return 0
    say(f"{_NAME}: {_advice(files)}. Nothing has been changed")
    return 1


def _advice(files: Sequence[ForeignFile]) -> str:
    if any(file.kind is ForeignJournalKind.NEWER_VERSION for file in files):
        return (
            "files of a later version cannot be made older. Run that version, or go back as"
            " docs/upgrading.md says"
        )
    return (
        "files of AMPS itself cannot be upgraded. Start with empty directories, or with"
        f" ampServer {OPTION}, and publish again what is needed"
    )


def _configured(path: str) -> InstanceSpec | None:
    """Return the instance of a configuration; report problems and return None if there is none."""
    problems = Problems()
    document = load(path, defines={}, environ=os.environ, problems=problems)
    spec = None
    if document is not None and document.is_complete:
        spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    if spec is None:
        report(path, problems)
    return spec


def _report(instance: str, files: Sequence[ForeignFile]) -> bytes:
    unusable = [
        {
            "file": str(file.path),
            "why": file.description,
            "configured": str(file.config_element.location),
        }
        for file in files
    ]
    return json_document(
        {"instance": instance, "can_be_used": not unusable, "cannot_be_used": unusable}
    )


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME,
        "Say whether the files of an instance can be used as they are.",
        as_json="print a JSON object that says so",
        epilog="There is nothing to upgrade: no file is ever changed. See docs/upgrading.md.",
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, help="the instance's configuration")
    add(
        "--from",
        dest="base",
        type=directory,
        metavar="BASE",
        help="the directory that relative paths in the configuration begin at",
    )
    add("--work-dir", type=directory, default=Path(), help="the same, if there is no --from")
    add("--tmp-dir", help="not used")
    add("--verbose", action="store_true", help="not used")
    add("--trace", action="store_true", help="not used")
    steps = parser.add_mutually_exclusive_group(required=True)
    for name in ("--check-current", "--dry-run", "--upgrade"):
        steps.add_argument(name, action="store_true", help="look at the files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
