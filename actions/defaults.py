"""The default actions of an instance on signals, unless its configuration replaces them.

An action of the configuration for one of these signals takes the place of the default for it.
Source: AMPS User Guide, On a Linux Signal (Default Signal Actions).
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from actions.on_signal import signal_of
from config_schema.problems import Location
from config_schema.spec import (
    ActionSpec,
    ActionStep,
    InstanceSpec,
    ModuleUse,
    Option,
    Options,
)

ON_SIGNAL: Final = "amps-action-on-signal"
STOP: Final = "amps-action-do-shutdown"
RELOAD: Final = "amps-action-do-reload-configuration"

DEFAULT_STEPS: Final[Mapping[signal.Signals, tuple[str, ...]]] = {
    signal.SIGUSR1: (
        "amps-action-do-disable-authentication",
        "amps-action-do-disable-entitlement",
    ),
    signal.SIGUSR2: (
        "amps-action-do-enable-authentication",
        "amps-action-do-enable-entitlement",
    ),
    signal.SIGINT: (STOP,),
    signal.SIGTERM: (STOP,),
    signal.SIGHUP: (STOP,),
    signal.SIGQUIT: ("amps-action-do-minidump",),
}


def signals_in_use(configured: Iterable[ActionSpec]) -> Mapping[signal.Signals, bool]:
    """Return the signals that an instance handles.

    Args:
        configured: the actions of the configuration.

    Returns:
        For each, true if it has its default meaning, and that is to stop the instance.
    """
    taken = _handled_signals(configured)
    return {
        **{number: STOP in steps for number, steps in DEFAULT_STEPS.items()},
        **dict.fromkeys(taken, False),
    }


def default_actions(configured: Iterable[ActionSpec], location: Location) -> tuple[ActionSpec, ...]:
    """Return the default actions that an instance has besides those of its configuration.

    Args:
        configured: the actions of the configuration.
        location: the location to give them, since they are not configured.
    """
    taken = _handled_signals(configured)
    return tuple(
        _action(number, modules, location)
        for number, modules in DEFAULT_STEPS.items()
        if number not in taken
    )


def reload_on_sighup(spec: InstanceSpec) -> InstanceSpec:
    """Return an instance that reloads its configuration on SIGHUP, instead of the default."""
    if signal.SIGHUP in _handled_signals(spec.actions):
        return spec
    action = _action(signal.SIGHUP, (RELOAD,), spec.location)
    return replace(spec, actions=(*spec.actions, action))


def _handled_signals(configured: Iterable[ActionSpec]) -> set[signal.Signals]:
    """Return the signals that actions of the configuration handle."""
    return {
        signal_of(trigger.options.get("Signal") or "")
        for action in configured
        for trigger in action.triggers
        if trigger.module == ON_SIGNAL
    }


def _action(number: signal.Signals, modules: Iterable[str], location: Location) -> ActionSpec:
    options = Options((Option("Signal", number.name, (), location),))
    steps = (ActionStep("do", ModuleUse(module, Options(()), location)) for module in modules)
    return ActionSpec((ModuleUse(ON_SIGNAL, options, location),), tuple(steps), location)
