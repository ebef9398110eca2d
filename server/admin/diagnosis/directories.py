"""The directories that an instance writes to, with their purposes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from config_schema.spec import InstanceSpec, TopicSpec

MEMORY = ":memory:"


class InstanceDirectory(NamedTuple):
    """A directory that an instance writes to.

    Attributes:
        purpose: its purpose, such as `journals`.
        path: the directory, absolute.
        needed_bytes: bytes of one more file there, as far as that is known.
        is_durable: True if its files have to survive a loss of power.
    """

    purpose: str
    path: Path
    needed_bytes: int = 0
    is_durable: bool = True


def instance_directories(spec: InstanceSpec) -> list[InstanceDirectory]:
    """Return the directories that an instance writes to, each once, with its first purpose.

    Relative paths begin at the working directory.
    """
    directories: dict[Path, InstanceDirectory] = {}
    for directory in _directories(spec):
        path = Path(os.path.abspath(directory.path))
        directories.setdefault(path, directory._replace(path=path))
    return [*directories.values()]


def _directories(spec: InstanceSpec) -> Iterator[InstanceDirectory]:
    log = spec.transaction_log
    if log is not None:
        yield InstanceDirectory("journals", Path(log.journal_directory), log.journal_size)
        if log.journal_archive_directory is not None:
            yield InstanceDirectory(
                "archived journals", Path(log.journal_archive_directory), log.journal_size
            )
    for topic in spec.sow:
        if isinstance(topic, TopicSpec) and topic.file_name is not None:
            yield InstanceDirectory("records", Path(topic.file_name).parent, topic.slab_size)
    if spec.admin is not None:
        if spec.admin.file_name != MEMORY:
            yield InstanceDirectory(
                "statistics", Path(spec.admin.file_name).parent, is_durable=False
            )
        yield InstanceDirectory("backups", Path(spec.admin.backup_directory), is_durable=False)
    if spec.limits.message_disk_path is not None:
        yield InstanceDirectory(
            "messages of slow clients", Path(spec.limits.message_disk_path), is_durable=False
        )
    for target in spec.logging:
        if target.file_name is not None:
            yield InstanceDirectory("logs", Path(target.file_name).parent, is_durable=False)
    if spec.mini_dump_directory is not None:
        yield InstanceDirectory("minidumps", Path(spec.mini_dump_directory), is_durable=False)
