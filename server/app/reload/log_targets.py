"""Log targets, added, removed and changed while the instance runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from config_schema.problems import Location, Problems
from config_schema.spec import LogTargetSpec
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadRefusedError,
    error_lines,
    parts_of,
)
from server.log.target_filter import select
from server.log.targets import LogTargetError

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from server.log.event_log import EventLog
    from server.log.targets import LogTarget

_NO_LOCATION: Final = Location("", 0)


class LogTargetsReload:
    """The targets of the log; see `ReloadablePart`.

    A target stays if it is the same but for its selection and its threshold.

    Args:
        log: the log.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def check(self, change: SettingChange, _reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        return "" if any(isinstance(part, LogTargetSpec) for part in parts_of(change)) else None

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        specs = reload.new.logging
        kept = self._kept_targets(specs)
        problems = Problems()
        for number in kept:
            select(specs[number], problems)
        if errors := error_lines(problems):
            raise ReloadRefusedError("\n".join(errors))
        added = [number for number in range(len(specs)) if number not in kept]
        try:
            opened = self._log.open_targets([specs[number] for number in added])
        except LogTargetError as error:
            raise ReloadRefusedError(str(error)) from None
        targets = kept | dict(zip(added, opened, strict=True))

        async def apply() -> None:
            self._log.replace_targets({targets[number]: spec for number, spec in enumerate(specs)})

        def discard() -> None:
            for target in opened:
                target.close()

        return PreparedChange(apply, discard)

    def _kept_targets(self, specs: tuple[LogTargetSpec, ...]) -> dict[int, LogTarget]:
        """Return the targets that stay, by the positions of their new specifications."""
        kept: dict[int, LogTarget] = {}
        for identity in (_without_location, _without_selection):
            for number, spec in enumerate(specs):
                same_target = (
                    target
                    for target in self._log.targets
                    if target not in kept.values() and identity(target.spec) == identity(spec)
                )
                if number not in kept and (target := next(same_target, None)):
                    kept[number] = target
        return kept


def _without_location(spec: LogTargetSpec) -> LogTargetSpec:
    return replace(spec, location=_NO_LOCATION)


def _without_selection(spec: LogTargetSpec) -> LogTargetSpec:
    """Return what a target cannot change while it is open."""
    return replace(
        spec,
        level=None,
        levels=(),
        include_errors=(),
        exclude_errors=(),
        rotation_threshold=None,
        location=_NO_LOCATION,
    )
