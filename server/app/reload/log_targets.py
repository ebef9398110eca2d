"""Selections of log targets, changed while the instance runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from config_schema.problems import Location, Problems
from config_schema.schema import ROOT
from config_schema.spec import LogTargetSpec
from server.app.reload.live_part import PreparedChange, ReloadCase, ReloadRefusedError, error_lines
from server.log.target_filter import select

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from server.log.event_log import EventLog
    from server.log.targets import LogTarget

_TARGET: Final = f"{ROOT}/Logging/Target"
_SELECTION: Final = ("Level", "Levels", "IncludeErrors", "ExcludeErrors")


class LogTargetsReload:
    """The targets of the log; see `LivePart`.

    Args:
        log: the log.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def check(self, change: SettingChange, _case: ReloadCase) -> str | None:
        """See `LivePart.check`."""
        if not change.path.startswith(_TARGET):
            return None
        if change.kind == "changed" and change.key in _SELECTION:
            return ""
        return "files are opened at the start"

    def prepare(self, case: ReloadCase) -> PreparedChange:
        """See `LivePart.prepare`."""
        targets: list[tuple[LogTarget, LogTargetSpec]] = []
        problems = Problems()
        for old, new in _changed_targets(case):
            select(new, problems)
            targets.append((self._find_target(old, [target for target, _ in targets]), new))
        if errors := error_lines(problems):
            raise ReloadRefusedError("\n".join(errors))

        async def apply() -> None:
            for target, spec in targets:
                self._log.reconfigure(target, spec)

        return PreparedChange(apply)

    def _find_target(self, spec: LogTargetSpec, taken: list[LogTarget]) -> LogTarget:
        """Return the target that a specification is of, wherever that is in the file."""
        place = spec.location
        return next(
            target
            for target in self._log.targets
            if target not in taken and replace(target.spec, location=place) == spec
        )


def _changed_targets(case: ReloadCase) -> Iterator[tuple[LogTargetSpec, LogTargetSpec]]:
    """Yield the old and the new specification of each target that changes, once."""
    pairs: dict[Location, tuple[LogTargetSpec, LogTargetSpec]] = {}
    for change in case.changes:
        old = None if change.before is None else change.before.part
        new = None if change.after is None else change.after.part
        if isinstance(old, LogTargetSpec) and isinstance(new, LogTargetSpec):
            pairs[new.location] = old, new
    yield from pairs.values()
