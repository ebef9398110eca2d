"""amps-action-on-schedule: a time has come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actions.local_zone import local_zone
from actions.module import ProvisionFailed, Trigger
from actions.schedule import Schedule, ScheduleError, parse_crontab, parse_every

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.services import Runnable, Services
    from config_schema.spec import Options
    from server.base.clock import Clock

_LONGEST_SLEEP: Final = 60.0
"""Seconds after which the clock is looked at again: it may have been set."""


class OnSchedule(Trigger):
    """Runs at regular intervals, or at times of the calendar.

    Firings that were missed, since the machine was suspended or its clock was set forward, are not
    made up for.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._cancel: Callable[[], None] | None = None
        self._due: datetime | None = None

    @property
    def next_run(self) -> float | None:
        """The next time of the schedule."""
        return None if self._due is None else self._due.timestamp()

    def provision(self, services: Services, action: Runnable) -> None:
        """Read the schedule; it counts from the start of the instance."""
        try:
            self._clock: Clock = services.engine.clock
            self._schedule = read_schedule(self.options)
            self._schedule.next_after(self._now())
        except (ScheduleError, OverflowError) as error:
            raise ProvisionFailed(str(error)) from None
        self._action = action
        self._cause = f"schedule {self._name}"

    @property
    def _name(self) -> str:
        """How the log calls the schedule: by its name, or by what it says."""
        given = (self.options.get(option) for option in ("Name", "Every", "Crontab"))
        return next(filter(None, given), "")

    def start(self) -> None:
        """Begin to wait for the first firing."""
        self._wait_for(self._schedule.next_after(self._now()))

    def close(self) -> None:
        """Wait no more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = self._due = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)

    def _wait_for(self, due: datetime) -> None:
        self._due = due
        seconds = max((due - self._now()).total_seconds(), 0.0)
        self._cancel = self._clock.call_later(
            min(seconds, _LONGEST_SLEEP), lambda: self._wake_up(due)
        )

    def _wake_up(self, due: datetime) -> None:
        now = self._now()
        if now < due:
            self._wait_for(due)
            return
        following = self._schedule.next_after(due)
        self._wait_for(following if following > now else self._schedule.next_after(now))
        self._action.post({}, self._cause)


def read_schedule(options: Options) -> Schedule:
    """The schedule that the options of this module describe, in local time unless they say UTC.

    Raises:
        ScheduleError: they describe none.
    """
    every = options.get("Every")
    if every is not None:
        return parse_every(every, local_zone())
    return parse_crontab(options.get("Crontab") or "", local_zone())
