"""amps-action-on-schedule: a time has come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actions.local_zone import local_zone
from actions.module import ModuleProvisionError, Trigger
from actions.schedule import (
    CalendarSchedule,
    IntervalSchedule,
    Schedule,
    ScheduleError,
    parse_crontab,
    parse_every,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.util.clock import Clock

_MAX_SLEEP: Final = 60.0
"""Seconds after which the clock is read again: it may run faster or slower than timers."""

MAX_CHANGE_OF_CLOCKS_S: Final = 3 * 3600.0
"""A wall clock that is set by more than this, in seconds, is corrected; see cron(8)."""


class OnSchedule(Trigger):
    """Runs at regular intervals, or at times of the calendar.

    Intervals are measured by the steady clock. Times of the calendar are those of the wall clock.
    A run in a time that the wall clock skips comes at once, once. A schedule that names its hour
    does not run again in a time that the clock repeats; others follow the new time. A clock that is
    set by more than three hours has been wrong: then all schedules follow the new time, and skipped
    runs are lost.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._cancel_timer: Callable[[], None] | None = None
        self._next_due: datetime | None = None
        self._remove_clock_listener: Callable[[], None] = _nothing

    @property
    def next_run(self) -> float | None:
        """The next time of the schedule."""
        if self._next_due is None:
            return None
        return self._next_due.timestamp() + (
            self._clock.wall_offset_s if self._is_interval else 0.0
        )

    def provision(self, services: ActionServices, action: Action) -> None:
        """Read the schedule; it counts from the start of the instance."""
        try:
            self._clock: Clock = services.engine.clock
            self._schedule = read_schedule(self.options)
            self._is_interval = isinstance(self._schedule, IntervalSchedule)
            self._schedule.next_after(self._schedule_now())
        except (ScheduleError, OverflowError) as error:
            raise ModuleProvisionError(str(error)) from None
        self._action = action
        self._cause = f"schedule {self._name}"

    @property
    def _name(self) -> str:
        """The name of the schedule in the log: its Name, or its text."""
        names = (self.options.get(option) for option in ("Name", "Every", "Crontab"))
        return next(filter(None, names), "")

    def start(self) -> None:
        """Begin to wait for the first firing."""
        if not self._is_interval:
            self._remove_clock_listener = self._clock.on_wall_clock_step(self._on_clock_step)
        self._set_timer(self._schedule.next_after(self._schedule_now()))

    def close(self) -> None:
        """Stop waiting for firings."""
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = self._next_due = None
        self._remove_clock_listener()
        self._remove_clock_listener = _nothing

    def _schedule_now(self) -> datetime:
        clock = self._clock
        return datetime.fromtimestamp(clock.steady() if self._is_interval else clock.now(), UTC)

    def _on_clock_step(self, seconds: float) -> None:
        """Follow the wall clock, which has been set by so many seconds."""
        if self._cancel_timer is None or self._next_due is None:
            return
        self._cancel_timer()
        is_repeated = (
            seconds < 0
            and isinstance(self._schedule, CalendarSchedule)
            and self._schedule.fires_once
        )
        is_skipped = seconds > 0
        if abs(seconds) <= MAX_CHANGE_OF_CLOCKS_S and (is_repeated or is_skipped):
            self._set_timer(self._next_due)
        else:
            self._set_timer(self._schedule.next_after(self._schedule_now()))

    def _set_timer(self, due: datetime) -> None:
        self._next_due = due
        seconds = max((due - self._schedule_now()).total_seconds(), 0.0)
        self._cancel_timer = self._clock.call_later(
            min(seconds, _MAX_SLEEP), lambda: self._on_timer(due)
        )

    def _on_timer(self, due: datetime) -> None:
        now = self._schedule_now()
        if now < due:
            self._set_timer(due)
            return
        next_due = self._schedule.next_after(due)
        self._set_timer(next_due if next_due > now else self._schedule.next_after(now))
        self._action.post({}, self._cause)


def _nothing() -> None:
    """Do nothing: there is no clock listener."""


def read_schedule(options: Options) -> Schedule:
    """Return the schedule that the options of this module describe, local time unless they say UTC.

    Raises:
        ScheduleError: they describe none.
    """
    every = options.get("Every")
    if every is not None:
        return parse_every(every, local_zone())
    return parse_crontab(options.get("Crontab") or "", local_zone())
