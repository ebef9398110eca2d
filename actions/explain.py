"""A description of actions in words, for `ampServer --explain-actions`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actions.catalogue import ACTION_MODULES
from actions.defaults import default_actions
from actions.on_schedule import read_schedule
from config_schema.catalogue import ModuleKind

if TYPE_CHECKING:
    from config_schema.spec import ActionSpec, InstanceSpec, ModuleUse

MAX_SHOWN_FIRINGS: Final = 5

_SCHEDULE: Final = "amps-action-on-schedule"


def explain(spec: InstanceSpec, now: datetime) -> str:
    """Describe the actions of an instance, the default ones included.

    Args:
        spec: its description.
        now: when it would start; with a time zone, in which firings are shown.
    """
    count = len(spec.actions)
    lines = [f"instance {spec.name}: {count} action{'' if count == 1 else 's'}"]
    for number, action in enumerate(spec.actions, 1):
        lines += ["", f"{number}. {action.location}", *_action(action, now)]
    lines += ["", "and by default"]
    lines += [_default(action) for action in default_actions(spec.actions, spec.location)]
    return "\n".join(lines)


def _action(action: ActionSpec, now: datetime) -> Iterator[str]:
    for use in action.triggers:
        yield from _use("when", ModuleKind.ON, use)
        if use.module == _SCHEDULE:
            yield from _firings(use, now)
    for step in action.steps:
        kind = ModuleKind.IF if step.kind == "if" else ModuleKind.DO
        yield from _use("if" if step.kind == "if" else "then", kind, step.use)


def _default(action: ActionSpec) -> str:
    steps = ACTION_MODULES[ModuleKind.DO]
    effects = ", ".join(steps[step.use.module].help for step in action.steps)
    return f"   {action.triggers[0].options.get('Signal')}: {effects}"


def _use(label: str, kind: ModuleKind, use: ModuleUse) -> Iterator[str]:
    rule = ACTION_MODULES[kind].get(use.module)
    effect = "" if rule is None else f": {rule.help}"
    yield f"   {label:5}{use.module}{effect}"
    for option in use.options:
        yield f"            {option.name} = {' '.join(option.value.split())}"


def _firings(use: ModuleUse, now: datetime) -> Iterator[str]:
    schedule = read_schedule(use.options)
    firing = now
    for _ in range(MAX_SHOWN_FIRINGS):
        try:
            firing = schedule.next_after(firing)
        except OverflowError:
            yield "            never fires again"
            return
        local_time = firing.astimezone(UTC).astimezone(
            now.tzinfo
        )  # a time that is left out is not shown
        yield f"            fires {local_time:%A %Y-%m-%d %H:%M:%S %Z}"
