"""`amps-backup`: makes backups of a running instance, lists, verifies and restores them.

Not in AMPS. The instance makes the backup, on a request to its admin interface; the other commands
read the directory with the backups, or an object store, and need no instance.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from server.app.command_line import CommandLineParser, count, directory, make_parser
from server.app.stdio import say
from server.cli.admin_login import add_login_options, read_login
from server.cli.doctor.admin_interface import AdminClient, AdminRequestError
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.storage.backup.catalogue import StoredBackup, list_backups
from server.storage.backup.manifest import BackupManifest
from server.storage.backup.object_store import ObjectStore, ObjectStoreError
from server.storage.backup.point_in_time import PointInTimeError
from server.storage.backup.restore import RestoreError, restore_backup
from server.storage.backup.verification import verify_backup
from server.storage.backup.writer import OUTSIDE
from server.util.json_lines import json_document, json_line

NAME: Final = "amps-backup"

_FAILED: Final = 1
_BEGUN: Final = re.compile(r"Backup (\S+) has begun in (.+)\.", re.DOTALL)
_POLL_INTERVAL_S: Final = 0.5

_Command = Callable[[argparse.Namespace], int]

_AFTER_RESTORE: Final = """\
The log goes on behind its last entry as another branch: messages that were recorded after the
backup are lost here, and their bookmarks name no other messages.
- A bookmark subscription from a lost message is told so, and begins where its option
  bookmark_not_found says; its processed ack has the reason "bookmark not found".
- Streams of Spark, continuous views and exports end with an error: give them a new checkpoint.
- Instances that replicate with this one send back the messages that they have.
- A publisher that takes its number from the logon ack uses numbers of lost messages again.
"""


@command(NAME, failed=_FAILED)
def main(arguments: Sequence[str] | None = None) -> int:
    """Execute a command.

    Returns:
        The exit status: 0 for success, 1 if the backup failed, is damaged or cannot be restored.
    """
    options = _parser().parse_args(arguments)
    status: int = options.do(options)
    return status


def _create(options: argparse.Namespace) -> int:
    """Request a backup, and wait for its end."""
    try:
        client = AdminClient(options.instance, read_login(options))
        backup_id, directory_name = _begin(client, options)
        state = "running"
        while state.startswith("running") and not options.no_wait:
            time.sleep(_POLL_INTERVAL_S)
            state = _state_of(client, backup_id)
    except (OSError, ValueError) as error:
        return _fail(f"{options.password_file}: {error}")
    except AdminRequestError as error:
        return _fail(f"{options.instance}: {error}{error.advice and '; '}{error.advice}")
    if state.startswith("failed"):
        return _fail(f"{backup_id} {state}")
    path = str(Path(directory_name, backup_id))
    if options.json:
        write_out([json_line({"id": backup_id, "path": path, "state": state})])
    else:
        write_out([f"{path}: {state}\n".encode(errors="surrogateescape")])
    return 0


def _begin(client: AdminClient, options: argparse.Namespace) -> tuple[str, str]:
    """Request a backup; return its id and the directory that it is made in.

    Raises:
        AdminRequestError: the request is refused.
    """
    result = str(client.administrator(("backup",), _parameters(options)))
    match = _BEGUN.fullmatch(result)
    if match is None:
        raise AdminRequestError(f"the answer is not understood: {result[:200]}")
    return match[1], match[2]


def _parameters(options: argparse.Namespace) -> dict[str, str]:
    parameters = {
        "directory": options.directory,
        "keep": options.keep,
        "keep_days": options.keep_days,
    }
    return {name: str(value) for name, value in parameters.items() if value is not None}


def _state_of(client: AdminClient, backup_id: str) -> str:
    runs = client.administrator(("backups",))
    states = [str(run["name"]) for run in runs if run["id"] == backup_id]
    if not states:
        raise AdminRequestError(f"{backup_id} is not known there any more: was it restarted?")
    return states[0]


def _list(options: argparse.Namespace) -> int:
    """Print the backups in a directory, the oldest first."""
    for backup in list_backups(options.directory):
        manifest = backup.manifest
        if options.json:
            write_out([json_line(_summary(backup))])
        elif manifest is None:
            write_out([f"{backup.id}  {backup.error}\n".encode(errors="surrogateescape")])
        else:
            line = (
                f"{backup.id}  {manifest.finished}  {len(manifest.files)} files, "
                f"{manifest.size} bytes, up to entry {manifest.last_txid} {manifest.last_time}"
            )
            write_out([f"{line.rstrip()}\n".encode(errors="surrogateescape")])
    return 0


def _summary(backup: StoredBackup) -> dict[str, object]:
    manifest = backup.manifest
    if manifest is None:
        return {"id": backup.id, "complete": False, "error": backup.error}
    return {
        "id": backup.id,
        "complete": True,
        "instance": manifest.instance,
        "version": manifest.version,
        "begun": manifest.begun,
        "finished": manifest.finished,
        "files": len(manifest.files),
        "bytes": manifest.size,
        "first_txid": str(manifest.first_txid),
        "last_txid": str(manifest.last_txid),
        "last_time": manifest.last_time,
        "last_bookmark": manifest.last_bookmark,
    }


def _verify(options: argparse.Namespace) -> int:
    """Verify one backup, or all in a directory."""
    backups = list_backups(options.directory)
    if options.id is not None:
        backups = [_find(backups, options.directory, options.id)]
    problem_count = 0
    for backup in backups:
        if backup.manifest is None:
            texts = [("", backup.error)]
        else:
            texts = list(verify_backup(backup.path, backup.manifest, _never_abort))
        problem_count += len(texts)
        for path, text in texts:
            _print_verdict(backup, path, text, as_json=options.json)
        if not texts:
            _print_verdict(backup, "", "", as_json=options.json)
    return _FAILED if problem_count else 0


def _print_verdict(backup: StoredBackup, path: str, problem: str, *, as_json: bool) -> None:
    if as_json:
        values = {"id": backup.id, "verdict": "damaged" if problem else "intact"}
        write_out([json_line(values | {"file": path, "problem": problem} if problem else values)])
        return
    file_text = f"{path}: " if path else ""
    line = f"{backup.id}: {file_text}{problem or 'intact'}\n"
    write_out([line.encode(errors="surrogateescape")])


def _restore(options: argparse.Namespace) -> int:
    """Restore a backup to a directory, and print what to do next."""
    backup = _find(list_backups(options.directory), options.directory, options.id)
    manifest = backup.manifest
    if manifest is None:
        return _fail(f"{backup.id}: {backup.error}")
    target: Path = options.to.absolute()
    try:
        last_txid = restore_backup(backup.path, manifest, target, _never_abort, options.until)
    except (RestoreError, PointInTimeError) as error:
        return _fail(str(error))
    if options.json:
        outside = [file.original for file in manifest.files if _is_outside(file.path)]
        values = {**_summary(backup), "directory": str(target), "outside": outside}
        values["restored_txid"] = str(last_txid)
        write_out([json_document(values)])
    else:
        write_out(
            [_restore_text(backup.id, manifest, target, last_txid).encode(errors="surrogateescape")]
        )
    return 0


def _upload(options: argparse.Namespace) -> int:
    """Copy a backup to an object store."""
    backup = _find(list_backups(options.directory), options.directory, options.id)
    if backup.manifest is None:
        return _fail(f"{backup.id}: {backup.error}")
    store = ObjectStore(options.to)
    sent = store.upload(backup, backup.manifest)
    _print_copied(backup.id, f"{store.url.rstrip('/')}/{backup.id}", sent, options)
    return 0


def _download(options: argparse.Namespace) -> int:
    """Copy a backup from an object store."""
    path = ObjectStore(options.url).download(options.id, options.to.absolute())
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    _print_copied(path.name, str(path), size, options)
    return 0


def _print_copied(backup_id: str, place: str, size: int, options: argparse.Namespace) -> None:
    if options.json:
        write_out([json_line({"id": backup_id, "place": place, "bytes": size})])
    else:
        write_out([f"{place}: {size} bytes were copied\n".encode(errors="surrogateescape")])


def _restore_text(backup_id: str, manifest: BackupManifest, target: Path, last_txid: int) -> str:
    lines = [f"{backup_id} has been restored to {target}"]
    if last_txid != manifest.last_txid:
        lines.append(f"the log ends with entry {last_txid}; the start rebuilds records from it")
    elif last_txid:
        end = f"the log ends with entry {manifest.last_txid}"
        end += f", recorded {manifest.last_time}" if manifest.last_time else ""
        end += f", bookmark {manifest.last_bookmark}" if manifest.last_bookmark else ""
        lines.append(end)
    outside = [file for file in manifest.files if _is_outside(file.path)]
    if outside:
        lines.append("These files were outside of the working directory; move them there:")
        lines += [f"  {target / file.path} -> {file.original}" for file in outside]
    if manifest.configuration:
        configuration = target / manifest.configuration
        lines.append(f"Start it with: cd {target} && ampServer {configuration}")
    return "\n".join([*lines, "", _AFTER_RESTORE])


def _is_outside(path: str) -> bool:
    return path.partition("/")[0] == OUTSIDE


class _UnknownBackupError(Exception):
    """There is no such backup. The text names it."""


def _find(backups: Sequence[StoredBackup], directory: Path, backup_id: str | None) -> StoredBackup:
    """Return the backup with an id, or else the newest complete one.

    Raises:
        _UnknownBackupError: there is none.
    """
    for backup in reversed(backups):
        if backup.id == backup_id or (backup_id is None and backup.manifest is not None):
            return backup
    missing = "complete backup" if backup_id is None else f"backup {backup_id}"
    raise _UnknownBackupError(f"there is no {missing} in {directory}")


def _never_abort() -> None:
    """Let a verification or a restore continue: an interrupt ends it."""


def _fail(text: str) -> int:
    say(f"{NAME}: {text}")
    return _FAILED


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME, "Make backups of an instance that runs; list, verify, restore and copy them."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_create(commands)
    for name, do, text in (
        ("list", _list, "list the backups in a directory"),
        ("verify", _verify, "check that backups can be restored"),
        ("restore", _restore, "restore a backup to an empty directory"),
    ):
        one = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(do=_reporting(do))
        one.add_argument(
            "directory", metavar="DIRECTORY", type=directory, help="the directory of the backups"
        )
        if name != "list":
            default = "all" if name == "verify" else "the newest complete one"
            one.add_argument(
                "id", metavar="ID", nargs="?", help=f"the backup; {default} if left out"
            )
        if name == "restore":
            one.add_argument(
                "--to",
                metavar="DIRECTORY",
                type=Path,
                required=True,
                help="where to; it must be empty, or not exist",
            )
            one.add_argument(
                "--until",
                metavar="TIME|BOOKMARK",
                help="end the log there: at a time such as 20261130T120000Z, or with a message",
            )
        one.add_argument("--json", action="store_true", help="print JSON objects")
    _add_copies(commands)
    return parser


def _add_copies(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    newest = "the backup; the newest complete one if left out"
    text = "copy a backup to an object store"
    upload = commands.add_parser("upload", help=text, description=f"{text[0].upper()}{text[1:]}.")
    upload.set_defaults(do=_reporting(_upload))
    add = upload.add_argument
    add("directory", metavar="DIRECTORY", type=directory, help="the directory of the backups")
    add("id", metavar="ID", nargs="?", help=newest)
    add("--to", metavar="URL", required=True, help="where to, such as s3://bucket/orders")
    add("--json", action="store_true", help="print a JSON object")
    text = "copy a backup from an object store"
    download = commands.add_parser(
        "download", help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    download.set_defaults(do=_reporting(_download))
    add = download.add_argument
    add("url", metavar="URL", help="where from, such as s3://bucket/orders")
    add("id", metavar="ID", nargs="?", help=newest)
    add("--to", metavar="DIRECTORY", type=Path, required=True, help="the directory of backups")
    add("--json", action="store_true", help="print a JSON object")


def _add_create(commands: argparse._SubParsersAction[CommandLineParser]) -> None:
    text = "have an instance make a backup"
    create = commands.add_parser("create", help=text, description=f"{text[0].upper()}{text[1:]}.")
    create.set_defaults(do=_create)
    add = create.add_argument
    add("--instance", metavar="URL", required=True, help="the admin interface of the instance")
    add(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        help="the directory of the backups on the instance's host, in its BackupDirectory;"
        " that one if left out",
    )
    add("--keep", type=count, metavar="N", help="keep so many backups, and remove older ones")
    add("--keep-days", type=count, metavar="N", help="keep backups of so many days")
    add("--no-wait", action="store_true", help="do not wait until the backup is complete")
    add_login_options(create)
    add("--json", action="store_true", help="print a JSON object")


def _reporting(do: _Command) -> _Command:
    """Return a command that reports a missing backup, or a store's error, in one line."""

    def run(options: argparse.Namespace) -> int:
        try:
            return do(options)
        except (_UnknownBackupError, ObjectStoreError) as error:
            return _fail(str(error))

    return run


if __name__ == "__main__":
    sys.exit(main())
