"""Files in the places of ours that are not ours: they are never touched, and the start stops.

A configuration that AMPS has run with names the directories where AMPS's journals and SOW files
are. They have the names that ours would have, and cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.problems import Located, Problems
from config_schema.spec import InstanceSpec, TopicSpec
from server.assembly.provision import ProvisionError
from server.assembly.provision_journal import journal_settings
from server.journal.belonging import file_type, strangers
from server.journal.errors import reason
from server.sow.slab_format import MAGIC, PAGE

if TYPE_CHECKING:
    from server.base.log import Log

OPTION: Final = "--set-aside-foreign-files"
_MAGIC_OFFSET: Final = 4  # in a SOW file, behind a checksum


class ForeignFile(NamedTuple):
    """A file that the instance must not touch.

    Attributes:
        where: the place in the configuration that names it, or its directory.
        element: how to call that place.
        path: of the file.
        what: what it is, for people.
        is_ours: it has been a file of this program, and is damaged throughout.
    """

    where: Located
    element: str
    path: Path
    what: str
    is_ours: bool


class ForeignFilesError(ProvisionError):
    """An instance would have to write over files that are not its own.

    Attributes:
        files: what is said about each of them.
    """

    def __init__(self, where: Located, problem: str, files: tuple[str, ...]) -> None:
        super().__init__(where, problem)
        self.files = files


def refuse_foreign_files(spec: InstanceSpec, log: Log, *, set_aside: bool) -> None:
    """Make sure that all files which an instance would write to are its own, or not there.

    Args:
        spec: the instance.
        log: told of each file that is not.
        set_aside: rename files that are foreign, so that the instance can start.

    Raises:
        ForeignFilesError: some are not; nothing has been changed. One that has been a file of this
            program, and is damaged throughout, is for a person to move.
        ProvisionError: a file cannot be read or renamed.
    """
    files = list(_foreign_files(spec))
    if set_aside and not any(file.is_ours for file in files):
        for file in files:
            log.emit("00-0044", path=file.path, what=file.what, aside=_set_aside(file))
        return
    for file in files:
        log.emit("00-0043", path=file.path, what=file.what)
    if files:
        count = "a file is" if len(files) == 1 else f"{len(files)} files are"
        raise ForeignFilesError(
            files[0].where,
            f"{count} in the way, and left untouched: give this instance directories of its own,"
            f" or move them; {OPTION} renames those that are foreign",
            tuple(f"{file.where.location}: {file.path} {file.what}" for file in files),
        )


def warn_of_foreign_files(spec: InstanceSpec, problems: Problems) -> None:
    """Say beforehand which files would keep an instance from starting."""
    try:
        for file in _foreign_files(spec):
            problems.warning(
                file.where, file.element, f"{file.path} {file.what}; the instance would not start"
            )
    except ProvisionError:
        return  # what cannot be read is told by the start, which may have other permissions


def _foreign_files(spec: InstanceSpec) -> Iterator[ForeignFile]:
    log = spec.transaction_log
    if log is not None:
        settings = journal_settings(spec, log)
        try:
            for one in strangers(spec.name, settings.directory, settings.archive):
                yield ForeignFile(log, "TransactionLog", *one)
        except OSError as error:
            raise ProvisionError(log, f"TransactionLog: {reason(error)}") from None
    for topic in spec.sow:
        if isinstance(topic, TopicSpec) and topic.file_name is not None:
            path = Path(topic.file_name)
            try:
                what = _what_is_no_sow_file(path)
            except OSError as error:
                why = f"SOW topic {topic.name}: {reason(error)}"
                raise ProvisionError(topic, why) from None
            if what is not None:
                yield ForeignFile(topic, "SOW/Topic", path, what, is_ours=False)


def _what_is_no_sow_file(path: Path) -> str | None:
    """What is in the place of a SOW file; None if that is one, however damaged, or nothing."""
    if not path.exists():
        return None
    kind = file_type(path)
    if kind is not None:
        return f"is {kind}, where a file is expected"
    with path.open("rb") as file:
        page = file.read(PAGE)
    if not any(page) or page.startswith(MAGIC, _MAGIC_OFFSET):
        return None
    return "is no SOW file of Amperage, and AMPS's own files cannot be read"


def _set_aside(file: ForeignFile) -> Path:
    """Rename a file to a name that is free."""
    number = 1
    while (aside := file.path.with_name(f"{file.path.name}.foreign-{number}")).exists():
        number += 1
    try:
        file.path.rename(aside)
    except OSError as error:
        raise ProvisionError(file.where, f"{reason(error)}") from None
    return aside
