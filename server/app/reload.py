"""Reads the configuration again while the instance runs, and applies what can change live.

The differences are those of `ampServer --diff`. All of them are applied, or none: a difference that
needs a restart refuses the whole reload, before anything is touched. To apply the others takes
assignments and timers only, which cannot fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from actions.runner import ActionError, changed_actions, is_scheduled
from config_schema.configuration_text import redact_document
from config_schema.problems import Location, Problems, Severity
from config_schema.schema import ROOT
from config_schema.settings import SettingChange, compare
from config_schema.spec import ActionSpec, InstanceSpec, LogTargetSpec, TransportSpec
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.app.configuration import Configuration, read_configuration
from server.app.diff import change_title, without_secrets
from server.log.target_filter import select
from server.topics.subscriptions.limits.client_limits import has_own_pool

if TYPE_CHECKING:
    from actions.runner import ActionRunner, PreparedAction
    from server.admin.pages import ConfigurationText
    from server.app.wiring.transport_table import TransportTable
    from server.log.event_log import EventLog
    from server.log.targets import LogTarget

_LOG_TARGET: Final = f"{ROOT}/Logging/Target"
_TRANSPORT: Final = f"{ROOT}/Transports/Transport"
_LOG_SETTINGS: Final = ("Level", "Levels", "IncludeErrors", "ExcludeErrors")
_LIMITS: Final = (
    "MessageMemoryLimit",
    "MessageDiskLimit",
    "ClientMaxCapacity",
    "ClientMessageAgeLimit",
)
LIVE_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    ROOT: _LIMITS,
    _LOG_TARGET: _LOG_SETTINGS,
    _TRANSPORT: _LIMITS,
}
"""The settings that can change while the instance runs, by the path of their entry."""


class ReloadRefusedError(Exception):
    """The configuration cannot be reloaded. The text has a line for each reason."""


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """Differences that can all be applied.

    Attributes:
        configuration: the configuration that has been read.
        spec: its specification.
        lines: a line for each difference.
        targets: the targets of the log that change, with their new specifications.
        removed_actions: the actions that do not run any more.
        added_actions: those that run from then on.
    """

    configuration: Configuration
    spec: InstanceSpec
    lines: tuple[str, ...]
    targets: tuple[tuple[LogTarget, LogTargetSpec], ...]
    removed_actions: list[ActionSpec]
    added_actions: list[PreparedAction]


class ConfigurationReload:
    """Reloads the configuration of one instance; used on the engine's thread.

    Args:
        running: the configuration that the instance runs.
        defines: variables given on the command line.
        log: the log.
        transports: the transports.
        actions: the actions.
        shown: the text of the configuration that the admin interface shows.
    """

    def __init__(
        self,
        running: Configuration,
        defines: Mapping[str, str],
        log: EventLog,
        transports: TransportTable,
        actions: ActionRunner,
        shown: ConfigurationText,
    ) -> None:
        self._running = running
        self._defines = defines
        self._log = log
        self._transports = transports
        self._actions = actions
        self._shown = shown
        self._lock = asyncio.Lock()

    @property
    def path(self) -> str:
        """The file of the configuration."""
        return self._running.path

    async def plan(self) -> tuple[str, ...]:
        """Read the configuration again, and return a line for each difference.

        Raises:
            ReloadRefusedError: it cannot be used, or a difference needs a restart.
        """
        plan = await self._read_plan()
        for prepared in plan.added_actions:
            prepared.discard()
        return plan.lines

    async def _read_plan(self) -> ReloadPlan:
        loop = asyncio.get_running_loop()
        return self._plan(
            await loop.run_in_executor(None, read_configuration, self.path, self._defines)
        )

    async def apply(self) -> tuple[str, ...]:
        """Read the configuration again, apply the differences, and return a line for each.

        Raises:
            ReloadRefusedError: as `plan`; nothing has changed.
        """
        async with self._lock:
            try:
                plan = await self._read_plan()
            except ReloadRefusedError as error:
                self._log.emit("00-0060", reasons="; ".join(str(error).splitlines()))
                raise
            self._apply(plan)
        self._log.emit("00-0059", changes="; ".join(plan.lines) or "no differences")
        return plan.lines

    def _plan(self, read: Configuration) -> ReloadPlan:
        if read.spec is None or read.document is None or not read.document.is_complete:
            raise ReloadRefusedError("\n".join(_errors(read.problems)))
        before, after, running = self._running.settings, read.settings, self._running.spec
        if before is None or after is None or running is None:
            raise AssertionError("the running configuration and this one can be used")
        secrets = self._running.secrets | read.secrets
        changes = compare(before, after)
        removed, added = changed_actions(running.actions, read.spec.actions)
        has_live_actions = all(map(is_scheduled, removed))
        refusals = [
            _refusal(change)
            for change in changes
            if not (_is_live(change) or (has_live_actions and _is_of_schedule(change)))
        ]
        targets: list[tuple[LogTarget, LogTargetSpec]] = []
        problems = Problems()
        for old, new in _changed_targets(changes):
            select(new, problems)
            targets.append((self._find_target(old, [target for target, _ in targets]), new))
        refusals += _errors(problems)
        if refusals:
            raise ReloadRefusedError("\n".join(refusals))
        lines = tuple(_line(without_secrets(change, secrets)) for change in changes)
        prepared = self._prepare_actions(added)
        return ReloadPlan(read, read.spec, lines, tuple(targets), removed, prepared)

    def _prepare_actions(self, specs: list[ActionSpec]) -> list[PreparedAction]:
        """Prepare all actions.

        Raises:
            ReloadRefusedError: one of them cannot be used; none is prepared.
        """
        prepared: list[PreparedAction] = []
        try:
            prepared.extend(self._actions.prepare(spec) for spec in specs)
        except ActionError as error:
            for action in prepared:
                action.discard()
            raise ReloadRefusedError(str(error)) from None
        return prepared

    def _find_target(self, spec: LogTargetSpec, taken: list[LogTarget]) -> LogTarget:
        """Return the target that a specification is of, wherever that is in the file."""
        place = spec.location
        return next(
            target
            for target in self._log.targets
            if target not in taken and replace(target.spec, location=place) == spec
        )

    def _apply(self, plan: ReloadPlan) -> None:
        for target, spec in plan.targets:
            self._log.reconfigure(target, spec)
        self._transports.update_limits(plan.spec)
        self._actions.replace(plan.spec.actions, plan.removed_actions, plan.added_actions)
        self._running = plan.configuration
        if plan.configuration.document is not None:
            self._shown.set(redact_document(plan.configuration.document))


def reload_group(
    running: Configuration,
    defines: Mapping[str, str],
    log: EventLog,
    transports: TransportTable,
    actions: ActionRunner,
    shown: ConfigurationText,
) -> OperationGroup:
    """Return the configuration as an entry that can be reloaded; see `ConfigurationReload`."""
    reload = ConfigurationReload(running, defines, log, transports, actions, shown)

    async def plan(_id: str, _parameters: OperationParameters) -> str:
        try:
            lines = await reload.plan()
        except ReloadRefusedError as error:
            raise OperationError(str(error)) from None
        return "\n".join(lines) or "There are no differences."

    async def apply(_id: str, _parameters: OperationParameters) -> str:
        try:
            lines = await reload.apply()
        except ReloadRefusedError as error:
            raise OperationError(str(error)) from None
        count = len(lines)
        applied = f"{count} difference{'' if count == 1 else 's'} applied."
        return "\n".join([*lines, applied])

    operations = (
        AdminOperation("plan", "show the differences that a reload would apply", plan),
        AdminOperation("apply", "read the file again, and apply all differences or none", apply),
    )
    return OperationGroup(("reload",), operations, lambda: {"configuration": reload.path})


def _is_live(change: SettingChange) -> bool:
    """Return whether a difference can be applied while the instance runs."""
    if change.kind != "changed" or not change.key or change.before is None or change.after is None:
        return False
    if change.key not in LIVE_SETTINGS.get(change.entries[-1].path, ()):
        return False
    old, new = change.before.part, change.after.part
    if isinstance(old, TransportSpec) and isinstance(new, TransportSpec):
        return has_own_pool(old.limits) and has_own_pool(new.limits)
    return True


def _is_of_schedule(change: SettingChange) -> bool:
    """Return whether a difference is of an action that runs on a schedule only."""
    parts = (entry.part for entry in change.entries)
    return any(isinstance(part, ActionSpec) and is_scheduled(part) for part in parts)


def _changed_targets(
    changes: list[SettingChange],
) -> Iterator[tuple[LogTargetSpec, LogTargetSpec]]:
    """Yield the old and the new specification of each log target that changes, once."""
    pairs: dict[Location, tuple[LogTargetSpec, LogTargetSpec]] = {}
    for change in changes:
        old = None if change.before is None else change.before.part
        new = None if change.after is None else change.after.part
        if isinstance(old, LogTargetSpec) and isinstance(new, LogTargetSpec) and _is_live(change):
            pairs[new.location] = old, new
    yield from pairs.values()


def _refusal(change: SettingChange) -> str:
    side = change.new or change.old
    location = "" if side is None else f" ({side.location})"
    return f"needs a restart: {change_title(change)}{location}"


def _line(change: SettingChange) -> str:
    title, old, new = change_title(change), change.old, change.new
    if change.kind != "changed":
        side = new or old
        return f"{title} is {change.kind}{f' ({side.location})' if side else ''}"
    if old is None or new is None:
        raise AssertionError("a setting that changes has both sides")
    return f"{title}: {old.text} -> {new.text} ({new.location})"


def _errors(problems: Problems) -> list[str]:
    return [str(problem) for problem in problems if problem.severity is Severity.ERROR]
