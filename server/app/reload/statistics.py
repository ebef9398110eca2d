"""The interval of statistics, changed while the instance runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from config_schema.spec import AdminSpec
from server.app.reload.reloadable_part import ConfigurationChange, PreparedChange, parts_of

if TYPE_CHECKING:
    from config_schema.settings import SettingChange
    from server.app.wiring.provision_statistics import StatisticsService


class StatisticsReload:
    """The interval of statistics; see `ReloadablePart`.

    Args:
        statistics: the collector and its thread.
    """

    def __init__(self, statistics: StatisticsService) -> None:
        self._statistics = statistics

    def check(self, change: SettingChange, _reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        is_admin = any(isinstance(part, AdminSpec) for part in parts_of(change))
        return "" if is_admin and change.key == "Interval" else None

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""

        async def apply() -> None:
            old, new = reload.old.admin, reload.new.admin
            if old is not None and new is not None and old.interval != new.interval:
                self._statistics.set_interval(new.interval)

        return PreparedChange(apply)
