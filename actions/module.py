"""What an action module is: a trigger (On), a step (Do) or a condition (If).

Modules live like this: construct (from options, no side effects) -> provision (gets the services of
the instance) -> run -> close. Everything runs on the engine's thread; what would make it wait is
awaited, and done by a helper thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Runnable, Services
    from actions.step_options import StepOptions
    from config_schema.spec import Options


class StepFailed(Exception):
    """A step did not do what it should. The text says why, for the log."""


class ProvisionFailed(Exception):
    """A module cannot be used. The text says why."""


class Trigger:
    """An On module.

    Args:
        options: what the configuration tells it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def provision(self, services: Services, action: Runnable) -> None:
        """Take note of what is there; from now on events may come.

        Raises:
            ProvisionFailed: the module cannot be used like this.
        """
        raise NotImplementedError

    def start(self) -> None:
        """The instance has started."""

    def close(self) -> None:
        """No more events, please."""

    @property
    def next_run(self) -> float | None:
        """When it makes its action run next, in seconds since 1970; None if nobody can tell."""
        return None


class _Part:
    """What Do and If modules have in common.

    Attributes:
        time_limit: seconds that a run may take; None for modules that never wait.
    """

    time_limit: ClassVar[float | None] = None

    def __init__(self, options: StepOptions) -> None:
        self.options = options

    @property
    def limit(self) -> float | None:
        """Seconds that this module may take."""
        return self.time_limit

    def provision(self, services: Services) -> None:
        """Take note of what is there.

        Raises:
            ProvisionFailed: the module cannot be used like this.
        """

    def close(self) -> None:
        """Give up what is going on."""


class Step(_Part):
    """A Do module."""

    async def run(self, context: Context) -> None:
        """Do it.

        Args:
            context: the variables; a step may set some.

        Raises:
            StepFailed: it could not be done; the action ends.
            OSError: the same, for what the operating system refused.
        """
        raise NotImplementedError


class Condition(_Part):
    """An If module."""

    async def holds(self, context: Context) -> bool:
        """Whether the action goes on.

        Raises:
            StepFailed: that cannot be told; the action ends.
            OSError: the same, for what the operating system refused.
        """
        raise NotImplementedError
