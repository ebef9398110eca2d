"""Steps that set the destinations that publishers wait for.

They are amps-action-do-upgrade-replication and amps-action-do-downgrade-replication.

Source: AMPS User Guide, Manage Replication Acknowledgment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step
from actions.options import AgeOption, interval_s, optional
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions
    from server.replication.links.replication_state import ReplicationState


class ChangeSyncType(Step):
    """Changes sync types by the age of the oldest entry that a destination has not acknowledged.

    Args:
        options: the options.
        change: `ReplicationState.upgrade_recovered` or `ReplicationState.downgrade_late`.
    """

    def __init__(
        self, options: StepOptions, change: Callable[[ReplicationState, int], object]
    ) -> None:
        super().__init__(options)
        self._change = change
        self._age = AgeOption(options)
        self._grace_period = optional(options, "GracePeriod")

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the destinations, and the start time of the instance."""
        self._replication = services.replication
        self._clock = services.engine.clock
        self._started_s = self._clock.steady()

    async def run(self, context: ActionContext) -> None:
        """Change it, unless the instance has just begun.

        Raises:
            StepError: an interval is none.
        """
        age_s, grace_s = self._age.read_s(context), 0.0
        if self._grace_period is not None:
            grace_s = interval_s("GracePeriod", self._grace_period, context)
        is_early = self._clock.steady() < self._started_s + grace_s
        if self._replication is not None and not is_early:
            self._change(self._replication, round(age_s * MICROSECONDS_PER_SECOND))
