"""The actions of one instance, from construction to close."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actions.action import Action, ActionPart, ActionRun
from actions.defaults import default_actions
from actions.module import ModuleProvisionError, Trigger
from actions.registry import TRIGGERS, make_part

if TYPE_CHECKING:
    from actions.services import ActionServices
    from config_schema.problems import Location
    from config_schema.spec import ActionSpec, InstanceSpec, ModuleUse

TRIGGERS_AT_START: Final[Mapping[str, str]] = {
    "amps-action-on-admin": "its path is made at the start",
    "amps-action-on-deliver-message": "deliveries are prepared with it",
    "amps-action-on-message-affinity": "it follows subscriptions from the start on",
    "amps-action-on-signal": "signals are handled from the start on",
}
"""The triggers of actions that cannot be added or removed while the instance runs, with reasons."""

_SETTLE_SECONDS: Final = 5.0
"""Maximum time in seconds that a stopping instance waits for runs that have begun or are queued."""


class ActionError(Exception):
    """An action cannot be provisioned. The text names the action, its location and the reason."""


@dataclass(frozen=True, slots=True)
class TriggerState:
    """A trigger of an action.

    Attributes:
        module: the module's name.
        options: its options, in the order of the configuration.
    """

    module: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ActionState:
    """The state of an action.

    Attributes:
        triggers: its triggers.
        parts: its steps and conditions, in order.
        location: where it is configured.
        runs: how often it has run since the start.
        failures: how many of these runs failed.
        waiting: runs that have not begun.
        last: the last run; None before the first.
        last_failure: the last run that failed.
        next_run: the time of the next run, in seconds since 1970; None if unknown.
    """

    triggers: tuple[TriggerState, ...]
    parts: tuple[str, ...]
    location: str
    runs: int
    failures: int
    waiting: int
    last: ActionRun | None
    last_failure: ActionRun | None
    next_run: float | None


@dataclass(frozen=True, slots=True)
class PreparedAction:
    """An action that is provisioned and does not run yet.

    Attributes:
        spec: its description.
        action: the action.
        triggers: its triggers.
    """

    spec: ActionSpec
    action: Action
    triggers: tuple[Trigger, ...]

    def discard(self) -> None:
        """Release it, if it is not to run."""
        for trigger in self.triggers:
            trigger.close()
        self.action.close()


class ActionRunner:
    """The actions of one instance.

    Args:
        spec: the instance's description.
        services: the services that actions may use.
    """

    def __init__(self, spec: InstanceSpec, services: ActionServices) -> None:
        self._services = services
        self._specs: list[ActionSpec] = []
        self._actions: list[Action] = []
        self._triggers: list[tuple[Trigger, Action, Location]] = []
        self._parts: list[ActionPart] = []
        self._retirements: set[asyncio.Task[None]] = set()
        for action in (*spec.actions, *default_actions(spec.actions, spec.location)):
            self._add_action(action)

    def provision(self) -> None:
        """Provision the modules; from now on events run actions.

        Raises:
            ActionError: a module cannot be used as configured.
        """
        for part in self._parts:
            try:
                part.module.provision(self._services)
            except ModuleProvisionError as error:
                raise ActionError(f"{part.location}: {part.name}: {error}") from None
        for trigger, action, location in self._triggers:
            try:
                trigger.provision(self._services, action)
            except ModuleProvisionError as error:
                raise ActionError(f"{location}: {action.name}: {error}") from None

    def prepare(self, spec: ActionSpec) -> PreparedAction:
        """Make and provision an action while the instance runs.

        Raises:
            ActionError: a module cannot be used as configured.
        """
        parts = _make_parts(spec)
        action = Action(_title(spec.triggers), parts, self._services)
        triggers = tuple(TRIGGERS[use.module](use.options) for use in spec.triggers)
        try:
            for part in parts:
                part.module.provision(self._services)
            for trigger in triggers:
                trigger.provision(self._services, action)
        except ModuleProvisionError as error:
            PreparedAction(spec, action, triggers).discard()
            raise ActionError(f"{spec.location}: {action.name}: {error}") from None
        return PreparedAction(spec, action, triggers)

    def replace(
        self,
        specs: Sequence[ActionSpec],
        removed: Sequence[ActionSpec],
        added: list[PreparedAction],
    ) -> None:
        """Replace actions while the instance runs; runs that have begun or wait go on.

        Args:
            specs: all actions of the new configuration.
            removed: actions that do not run any more, as in the old configuration.
            added: actions that run from now on.
        """
        for spec in removed:
            self._remove_action([action_key(spec) for spec in self._specs].index(action_key(spec)))
        current = {action_key(spec): spec for spec in specs}
        self._specs = [current.get(action_key(spec), spec) for spec in self._specs]
        for prepared in added:
            self._specs.append(prepared.spec)
            self._actions.append(prepared.action)
            for trigger in prepared.triggers:
                self._triggers.append((trigger, prepared.action, prepared.spec.location))
                trigger.start()

    def _remove_action(self, index: int) -> None:
        action = self._actions.pop(index)
        del self._specs[index]
        for trigger, owner, _ in self._triggers:
            if owner is action:
                trigger.close()
        self._triggers = [entry for entry in self._triggers if entry[1] is not action]
        retirement = asyncio.get_running_loop().create_task(_retire(action))
        self._retirements.add(retirement)
        retirement.add_done_callback(self._retirements.discard)

    def states(self) -> list[ActionState]:
        """Return the states of the actions, in the order of the configuration."""
        return [
            self._state_of(spec, action)
            for spec, action in zip(self._specs, self._actions, strict=True)
        ]

    def _state_of(self, spec: ActionSpec, action: Action) -> ActionState:
        next_runs = (trigger.next_run for trigger, owner, _ in self._triggers if owner is action)
        return ActionState(
            tuple(_trigger_state(use) for use in spec.triggers),
            tuple(step.use.module for step in spec.steps),
            str(spec.location),
            action.run_count,
            action.failure_count,
            action.pending_runs,
            action.last_run,
            action.last_failed_run,
            min((time_s for time_s in next_runs if time_s is not None), default=None),
        )

    async def start(self) -> None:
        """Start the triggers, such as schedules, and run the actions of the startup event."""
        for trigger, _, _ in self._triggers:
            trigger.start()
        for callback in self._services.startup_callbacks:
            await callback()

    async def run_shutdown_actions(self) -> None:
        """Run the actions of the shutdown event, before the instance stops."""
        for callback in self._services.shutdown_callbacks:
            await callback()

    async def close(self) -> None:
        """Stop receiving events, wait a limited time for runs to finish, and cancel the rest."""
        for trigger, _, _ in self._triggers:
            trigger.close()
        busy = [asyncio.ensure_future(action.wait_until_idle()) for action in self._actions]
        busy += self._retirements
        if busy:
            await asyncio.wait(busy, timeout=_SETTLE_SECONDS)
        for action in self._actions:
            action.close()
        self._services.helper_threads.close()

    def _add_action(self, spec: ActionSpec) -> None:
        parts = _make_parts(spec)
        action = Action(_title(spec.triggers), parts, self._services)
        self._specs.append(spec)
        self._actions.append(action)
        self._parts += parts
        self._triggers += [
            (TRIGGERS[use.module](use.options), action, use.location) for use in spec.triggers
        ]


def action_key(spec: ActionSpec) -> Hashable:
    """Return a key that is equal for actions that do the same, wherever they are configured."""
    triggers = tuple(use.meaning for use in spec.triggers)
    return triggers, tuple((step.kind, step.use.meaning) for step in spec.steps)


def restart_reason(spec: ActionSpec) -> str:
    """Return why an action cannot be added or removed while the instance runs; "" if it can."""
    reasons = (TRIGGERS_AT_START.get(use.module, "") for use in spec.triggers)
    return next(filter(None, reasons), "")


def changed_actions(
    old: Sequence[ActionSpec], new: Sequence[ActionSpec]
) -> tuple[list[ActionSpec], list[ActionSpec]]:
    """Return the actions that only the old and only the new configuration has."""
    return _without(old, new), _without(new, old)


def _without(specs: Sequence[ActionSpec], others: Sequence[ActionSpec]) -> list[ActionSpec]:
    counts = Counter(map(action_key, others))
    found = []
    for spec in specs:
        key = action_key(spec)
        if counts[key]:
            counts[key] -= 1
        else:
            found.append(spec)
    return found


async def _retire(action: Action) -> None:
    """Close an action after its last run."""
    await action.wait_until_idle()
    action.close()


def _make_parts(spec: ActionSpec) -> list[ActionPart]:
    return [
        ActionPart(step.use.module, make_part(step.use.module, step.use.options), step.use.location)
        for step in spec.steps
    ]


def _trigger_state(use: ModuleUse) -> TriggerState:
    return TriggerState(use.module, tuple((option.name, option.value) for option in use.options))


def _title(triggers: Sequence[ModuleUse]) -> str:
    return ", ".join(trigger.module for trigger in triggers)
