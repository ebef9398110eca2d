"""Finds journals of other instances where this one has none: it may have been renamed.

The names of journals begin with the name of their instance. So an instance with a new `Name` and
the same directories begins an empty log beside its former journals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.app.wiring.provision_journal import journal_settings
from server.storage.journal.format.file_names import instances_with_journals, journal_files

if TYPE_CHECKING:
    from pathlib import Path

    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec
    from server.util.log_protocol import ServerLog

_COST: Final = (
    "their content is not available: messages of queues, replays and bookmarks, and the sequence"
    " numbers of publishers"
)


def log_journals_of_others(spec: InstanceSpec, log: ServerLog) -> None:
    """Log the journals that a start ignores because they belong to another instance."""
    for directory, others in _journals_of_others(spec):
        log.emit("1D-0039", directory=directory, others=others, instance=spec.name)


def warn_of_journals_of_others(spec: InstanceSpec, problems: Problems) -> None:
    """Warn of journals that a start would ignore because they belong to another instance."""
    for directory, others in _journals_of_others(spec):
        assert spec.transaction_log is not None  # noqa: S101 - there are directories
        problems.warning(
            spec.transaction_log,
            "TransactionLog",
            f"{directory} contains journals of {others}, but none of {spec.name}: {_COST}",
            "give the instance its previous Name, or a directory of its own",
        )


def _journals_of_others(spec: InstanceSpec) -> list[tuple[Path, str]]:
    """Return the directories with journals of other instances only, and the instances' names."""
    if spec.transaction_log is None:
        return []
    settings = journal_settings(spec, spec.transaction_log)
    directories = [place for place in (settings.directory, settings.archive) if place is not None]
    try:
        if any(journal_files(directory, spec.name) for directory in directories):
            return []
        owners = [(place, sorted(instances_with_journals(place))) for place in directories]
    except OSError:
        return []  # the start reports it
    return [(directory, ", ".join(others)) for directory, others in owners if others]
