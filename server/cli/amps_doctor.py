"""`amps-doctor`: finds the problems of an instance: one report, and one archive for a colleague.

Not in AMPS. `server/cli/doctor/` examines the instance; this module has the command line, and
writes the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from config_schema.units import UnitError, parse_interval
from server.app.command_line import CommandLineParser, directory, file_name, make_parser
from server.app.stdio import say
from server.cli.admin_login import add_login_options, read_login
from server.cli.doctor import report
from server.cli.doctor.archive import write_archive
from server.cli.doctor.configuration import read
from server.cli.doctor.examination import ExaminationRequest, examine
from server.cli.doctor.findings import EXIT_STATUS, Examination
from server.cli.doctor.migration.checklist import as_data, make_checklist
from server.cli.doctor.migration.text import as_text
from server.cli.doctor.redaction import SecretRedactor
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.engine.delay_measurement import MAX_DURATION_S
from server.storage.sow.records import NANOSECONDS

_NAME: Final = "amps-doctor"
_FAILED: Final = 4
_LATENCY_S: Final = 5.0


@command(_NAME, failed=_FAILED)
def main(arguments: Sequence[str] | None = None) -> int:
    """Examine an instance, or a configuration of AMPS that is to be migrated.

    Returns:
        The exit status: 0 if all is well, 1 if something should be looked at, 3 if something is
        wrong, 4 if there is no report.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.migrate is not None:
        return _migrate(options)
    if options.config is None and options.url is None:
        parser.error("nothing to look at: give --config FILE, --url URL, or both")
    moment = datetime.now(UTC)
    output = Path.cwd() / (options.output or "")
    secrets = SecretRedactor()
    try:
        login = read_login(options)
    except (OSError, ValueError) as error:
        say(f"{_NAME}: {options.password_file}: {error}")
        return _FAILED
    secrets.add([login.password])
    defines = dict(options.defines)
    secrets.add(value for name, value in defines.items() if _is_secret(name))
    question = ExaminationRequest(
        options.config,
        options.url,
        login,
        defines,
        options.work_dir and options.work_dir.absolute(),
        options.minidump,
        options.latency_s,
    )
    examination = examine(question, secrets)
    archive = None
    if not options.no_archive:
        archive = _archive(
            examination, secrets, moment, output, is_named=options.output is not None
        )
    _print(examination, secrets, moment, archive, as_json=options.json)
    return EXIT_STATUS[examination.worst_verdict]


def _migrate(options: argparse.Namespace) -> int:
    """Print the checklist for the migration of a configuration from AMPS to this server."""
    secrets = SecretRedactor()
    configuration = read(options.migrate, dict(options.defines), secrets)
    if options.work_dir is not None:
        os.chdir(options.work_dir)
    checklist = make_checklist(configuration)
    _put(_json(as_data(checklist), secrets) if options.json else secrets.redact(as_text(checklist)))
    return EXIT_STATUS[checklist.verdict]


def _archive(
    examination: Examination,
    secrets: SecretRedactor,
    moment: datetime,
    output: Path,
    *,
    is_named: bool,
) -> Path | None:
    """Write the archive and return its path; add a finding and return None if that fails."""
    folder = f"{_NAME}-{report.instance_name(examination)}-{moment:%Y%m%dT%H%M%SZ}"
    path = output if is_named else output / f"{folder}.tar.gz"
    texts = {name: secrets.redact(text) for name, text in examination.texts.items()}
    documents = {**examination.documents, "report.json": report.as_data(examination, moment)}
    for name, document in documents.items():
        texts[name] = _json(document, secrets)
    texts["report.txt"] = secrets.redact(report.as_text(examination, moment))
    try:
        write_archive(path, folder, texts, moment)
    except OSError as error:
        examination.add_wrong(
            "archive",
            str(path),
            error.strerror or str(error),
            "there is no archive",
            "name another file with --output",
        )
        return None
    return path


def _print(
    examination: Examination,
    secrets: SecretRedactor,
    moment: datetime,
    archive: Path | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        data = {**report.as_data(examination, moment), "archive": archive and str(archive)}
        _put(_json(data, secrets))
        return
    _put(secrets.redact(report.as_text(examination, moment)))
    if archive is not None:
        _put(f"\nFor a colleague: {archive}\n")


def _json(document: object, secrets: SecretRedactor) -> str:
    """Return a redacted document as ASCII JSON: names of files may be invalid in any encoding."""
    return json.dumps(secrets.redact_document(document), indent=2) + "\n"


def _put(text: str) -> None:
    write_out([text.encode(errors="backslashreplace")])


def _is_secret(name: str) -> bool:
    lower = name.lower()
    return any(mark in lower for mark in ("password", "secret", "token", "key"))


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text} is no definition: expected NAME=VALUE")
    return name, value


def _seconds(text: str) -> float:
    try:
        seconds = parse_interval(text) / NANOSECONDS
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < seconds <= MAX_DURATION_S:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MAX_DURATION_S:g} seconds")
    return seconds


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME,
        "Look at an instance, running or not: what is the matter with it?",
        as_json="print the report, or the checklist, as a JSON object",
        epilog="Nothing is changed, messages are not read, and what is secret is hidden.",
    )
    add = parser.add_argument
    add("--config", type=file_name, metavar="FILE", help="the instance's configuration")
    add(
        "--migrate",
        type=file_name,
        metavar="FILE",
        help="print a checklist for moving the instance of this configuration here from AMPS",
    )
    add("--url", help="its admin interface, if not where the configuration says")
    add_login_options(parser)
    add("--work-dir", type=directory, metavar="DIRECTORY", help="where relative paths begin")
    add(
        "-D",
        dest="defines",
        metavar="NAME=VALUE",
        type=_definition,
        action="append",
        default=[],
        help="set a variable of the configuration, as for ampServer",
    )
    add("--minidump", action="store_true", help="have the instance write a minidump now")
    add(
        "--latency",
        nargs="?",
        const=_LATENCY_S,
        default=0.0,
        type=_seconds,
        dest="latency_s",
        metavar="TIME",
        help=f"measure how long clients wait for the engine, and why, for a time ({_LATENCY_S:g}s)",
    )
    add(
        "--output",
        type=file_name,
        metavar="FILE",
        help="the archive; a name with instance and time if not given",
    )
    add("--no-archive", action="store_true", help="print the report only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
