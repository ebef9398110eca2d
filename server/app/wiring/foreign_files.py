"""Detects foreign files at the paths that the instance would write to, and refuses the start.

Foreign files are never touched. A configuration that AMPS has run with names the directories of
AMPS's journals and SOW files, which have the names that ours would have and cannot be read. Files
of a later version of this program are refused too: a start without them would lose their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.problems import HasLocation, Problems
from config_schema.spec import AdminSpec, InstanceSpec, ModuleSpec, TopicSpec
from server.app.wiring.provision import ProvisionError
from server.app.wiring.provision_journal import journal_settings
from server.statistics import layout
from server.storage.journal.errors import reason
from server.storage.journal.recovery.foreign_files import (
    ForeignJournalKind,
    file_type,
    find_foreign_journals,
)
from server.storage.sow.keys import chain_file
from server.storage.sow.keys.generators import CHAINING
from server.storage.sow.slab.slab_format import MAGIC, PAGE, VERSION, unpack_file_header
from server.util.file_lock import version_mismatch

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

OPTION: Final = "--set-aside-foreign-files"
_MAGIC_OFFSET: Final = 4  # in a SOW file, behind a checksum


class ForeignFile(NamedTuple):
    """A file that the instance must not touch.

    Attributes:
        config_element: the place in the configuration that names it, or its directory.
        element: the name of that place in messages.
        path: the file's path.
        description: a description for messages.
        kind: whether it is foreign, damaged throughout, or of a later version.
    """

    config_element: HasLocation
    element: str
    path: Path
    description: str
    kind: ForeignJournalKind


class ForeignFilesError(ProvisionError):
    """An instance would have to overwrite files that are not its own.

    Attributes:
        files: a line of text about each of them.
    """

    def __init__(self, where: HasLocation, problem: str, files: tuple[str, ...]) -> None:
        super().__init__(where, problem)
        self.files = files


def refuse_foreign_files(spec: InstanceSpec, log: ServerLog, *, set_aside: bool) -> None:
    """Refuse the start if a file that the instance would write to exists and is not its own.

    Args:
        spec: the instance.
        log: gets an entry for each such file.
        set_aside: rename foreign files, so that the instance can start.

    Raises:
        ForeignFilesError: there are such files; nothing has been changed. A file of this program
            that is damaged throughout, or of a later version, must be moved by the operator.
        ProvisionError: a file cannot be read or renamed.
    """
    files = find_foreign_files(spec)
    if set_aside and all(file.kind is ForeignJournalKind.FOREIGN for file in files):
        for file in files:
            log.emit("00-0044", path=file.path, what=file.description, aside=_set_aside(file))
        return
    for file in files:
        log.emit("00-0043", path=file.path, what=file.description)
    if files:
        raise ForeignFilesError(
            files[0].config_element,
            _advice(files),
            tuple(
                f"{file.config_element.location}: {file.path} {file.description}" for file in files
            ),
        )


def _advice(files: Sequence[ForeignFile]) -> str:
    """Return the advice to the operator about files that are in the way."""
    later = [file for file in files if file.kind is ForeignJournalKind.NEWER_VERSION]
    if later:
        count = "a file is" if len(later) == 1 else f"{len(later)} files are"
        return (
            f"{count} of a later version of this program, and nothing has been touched: start that"
            " version, or go back as docs/upgrading.md says"
        )
    count = "a file is" if len(files) == 1 else f"{len(files)} files are"
    return (
        f"{count} in the way, and left untouched: give this instance directories of its own,"
        f" or move them; {OPTION} renames those that are foreign"
    )


def warn_of_foreign_files(spec: InstanceSpec, problems: Problems) -> None:
    """Warn of files that would keep an instance from starting."""
    try:
        for file in _foreign_files(spec):
            problems.warning(
                file.config_element,
                file.element,
                f"{file.path} {file.description}; the instance would not start",
            )
    except ProvisionError:
        return  # the start reports unreadable files: it may run with other permissions


def find_foreign_files(spec: InstanceSpec) -> list[ForeignFile]:
    """Return the files that an instance would have to overwrite though they are not its own.

    Raises:
        ProvisionError: a file cannot be read.
    """
    return list(_foreign_files(spec))


def _foreign_files(spec: InstanceSpec) -> Iterator[ForeignFile]:
    log = spec.transaction_log
    if log is not None:
        settings = journal_settings(spec, log)
        try:
            for journal in find_foreign_journals(spec.name, settings.directory, settings.archive):
                yield ForeignFile(log, "TransactionLog", *journal)
        except OSError as error:
            raise ProvisionError(log, f"TransactionLog: {reason(error)}") from None
    for topic in spec.sow:
        if isinstance(topic, TopicSpec):
            try:
                yield from _topic_files(topic, spec.modules)
            except OSError as error:
                why = f"SOW topic {topic.name}: {reason(error)}"
                raise ProvisionError(topic, why) from None
    if spec.admin is not None:
        yield from _statistics_files(spec.admin)


def _topic_files(topic: TopicSpec, modules: Iterable[ModuleSpec]) -> Iterator[ForeignFile]:
    if topic.file_name is not None:
        path = Path(topic.file_name)
        judged = _judge_sow_file(path)
        if judged is not None:
            yield ForeignFile(topic, "SOW/Topic", path, *judged)
    use = topic.key_generator
    libraries = {module.name: module.library for module in modules}
    if use is not None and Path(libraries.get(use.module, use.module)).name == CHAINING:
        for path in map(Path, use.options.all("FileName")):
            header = _read(path, chain_file.HEADER_SIZE)
            why = chain_file.other_version(header)
            if why is not None:
                yield ForeignFile(
                    use,
                    "KeyGenerator",
                    path,
                    _foreign_description(why),
                    ForeignJournalKind.NEWER_VERSION,
                )


def _judge_sow_file(path: Path) -> tuple[str, ForeignJournalKind] | None:
    """Describe the file at a SOW file's path; None if it is missing, or one, however damaged."""
    if not path.exists():
        return None
    kind = file_type(path)
    if kind is not None:
        return f"is {kind}, where a file is expected", ForeignJournalKind.FOREIGN
    page = _read(path, PAGE)
    described = unpack_file_header(page)
    if described is not None and described[0] != VERSION:
        return _foreign_description(
            version_mismatch(described[0], VERSION)
        ), ForeignJournalKind.NEWER_VERSION
    if not any(page) or page.startswith(MAGIC, _MAGIC_OFFSET):
        return None
    return (
        "is no SOW file of Amperage, and AMPS's own files cannot be read",
        ForeignJournalKind.FOREIGN,
    )


def _statistics_files(admin: AdminSpec) -> Iterator[ForeignFile]:
    """Yield the statistics database if a later version has made it; others are handled later."""
    path = Path(admin.file_name)
    with suppress(OSError):  # statistics work without the file
        why = layout.later_version(_read(path, layout.HEADER_SIZE))
        if why is not None:
            yield ForeignFile(
                admin,
                "Admin/FileName",
                path,
                _foreign_description(why),
                ForeignJournalKind.NEWER_VERSION,
            )


def _read(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if it is missing or no regular file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def _foreign_description(why: str) -> str:
    return f"is of another Amperage: {why}"


def _set_aside(file: ForeignFile) -> Path:
    """Rename a file to an unused name, and return the new path."""
    number = 1
    while (aside := file.path.with_name(f"{file.path.name}.foreign-{number}")).exists():
        number += 1
    try:
        file.path.rename(aside)
    except OSError as error:
        raise ProvisionError(file.config_element, f"{reason(error)}") from None
    return aside
