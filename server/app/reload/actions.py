"""Actions, added and removed while the instance runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.runner import ActionError, changed_actions, restart_reason
from config_schema.spec import ActionSpec
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadRefusedError,
    parts_of,
)

if TYPE_CHECKING:
    from actions.runner import ActionRunner, PreparedAction
    from config_schema.settings import SettingChange


class ActionsReload:
    """The actions; see `ReloadablePart`.

    Args:
        actions: runs them.
    """

    def __init__(self, actions: ActionRunner) -> None:
        self._actions = actions

    def check(self, change: SettingChange, reload: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        actions = [part for part in parts_of(change) if isinstance(part, ActionSpec)]
        if not actions:
            return None
        removed, _ = changed_actions(reload.old.actions, reload.new.actions)
        return next(filter(None, map(restart_reason, (*actions, *removed))), "")

    def prepare(self, reload: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        removed, added = changed_actions(reload.old.actions, reload.new.actions)
        prepared = self._prepare_actions(added)

        async def apply() -> None:
            self._actions.replace(reload.new.actions, removed, prepared)

        return PreparedChange(apply, partial(_discard, prepared))

    def _prepare_actions(self, specs: list[ActionSpec]) -> list[PreparedAction]:
        """Prepare all actions.

        Raises:
            ReloadRefusedError: one of them cannot be used; none is prepared.
        """
        prepared: list[PreparedAction] = []
        try:
            prepared.extend(self._actions.prepare(spec) for spec in specs)
        except ActionError as error:
            _discard(prepared)
            raise ReloadRefusedError(str(error)) from None
        return prepared


def _discard(prepared: list[PreparedAction]) -> None:
    for action in prepared:
        action.discard()
