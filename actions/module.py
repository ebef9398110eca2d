"""The base classes of action modules: triggers (On), steps (Do) and conditions (If).

The life of a module: construct (from options, no side effects) -> provision (gets the services of
the instance) -> run -> close. Everything runs on the engine's thread; blocking calls are executed
by a helper thread and awaited.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.action import Action
    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions
    from config_schema.spec import Options

_ListenerT = TypeVar("_ListenerT")


class StepError(Exception):
    """A step failed. The text is the reason, for the log."""


class ModuleProvisionError(Exception):
    """A module cannot be used. The text is the reason."""


class Trigger:
    """An On module.

    Args:
        options: its options in the configuration.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._end_functions: list[Callable[[], None]] = []

    def provision(self, services: ActionServices, action: Action) -> None:
        """Connect to the services; from now on events may arrive.

        Raises:
            ModuleProvisionError: the module cannot be used like this.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin, because the instance has started."""

    def add_listener(self, listeners: list[_ListenerT], listener: _ListenerT) -> None:
        """Add a listener to those of an event, until `close`."""
        listeners.append(listener)
        self._end_functions.append(partial(listeners.remove, listener))

    def end_later(self, end: Callable[[], None]) -> None:
        """Call a function at `close`, which stops events."""
        self._end_functions.append(end)

    def close(self) -> None:
        """Stop receiving events."""
        for end in self._end_functions:
            end()
        self._end_functions.clear()

    @property
    def next_run(self) -> float | None:
        """The time of the next run of its action, in seconds since 1970; None if unknown."""
        return None


class _ActionModule:
    """The base of Do and If modules.

    Attributes:
        time_limit: maximum duration of a run in seconds; None for modules that never wait.
        services: the services of the instance, once the module is provisioned.
    """

    time_limit: ClassVar[float | None] = None

    def __init__(self, options: StepOptions) -> None:
        self.options = options

    def limit_s(self, _context: ActionContext) -> float | None:
        """Return the maximum duration of a run of this module, in seconds.

        Raises:
            StepError: with the variables filled in, its option is no interval.
        """
        return self.time_limit

    def provision(self, services: ActionServices) -> None:
        """Connect to the services.

        Raises:
            ModuleProvisionError: the module cannot be used like this.
        """
        self.services = services

    def close(self) -> None:
        """Abort work in progress."""


class Step(_ActionModule):
    """A Do module."""

    async def run(self, context: ActionContext) -> None:
        """Execute the step.

        Args:
            context: the variables; a step may set some.

        Raises:
            StepError: the step failed; the action ends.
            OSError: the operating system refused a call; the action ends.
        """
        raise NotImplementedError


class Condition(_ActionModule):
    """An If module."""

    async def holds(self, context: ActionContext) -> bool:
        """Return true if the action continues.

        Raises:
            StepError: the condition cannot be evaluated; the action ends.
            OSError: the operating system refused a call; the action ends.
        """
        raise NotImplementedError
