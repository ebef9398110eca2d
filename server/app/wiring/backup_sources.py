"""Determines the files of an instance that a backup has besides log and records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.engine.maintenance.backup import BackupSources

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.app.wiring.provision_sow import OpenTopic
    from server.app.wiring.source_files import SourceFileWatch

_IN_MEMORY: Final = ":memory:"


def backup_sources(
    spec: InstanceSpec, source_files: SourceFileWatch, topics: Iterable[OpenTopic]
) -> BackupSources:
    """Return the further files for backups of an instance.

    Args:
        spec: the instance's description.
        source_files: has the files of the configuration, which a reload changes.
        topics: the topics with records, as they were opened.
    """
    has_statistics = spec.admin is not None and spec.admin.file_name != _IN_MEMORY
    return BackupSources(
        spec.name,
        lambda: source_files.configuration,
        [topic.chains.file.path for topic in topics if topic.chains is not None],
        Path(spec.admin.file_name) if spec.admin is not None and has_statistics else None,
    )
