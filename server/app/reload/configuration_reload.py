"""Reads the configuration again while the instance runs, and applies what can change live.

The differences are those of `ampServer --diff`. All of them are applied, or none: a difference that
needs a restart refuses the whole reload, before anything is touched; so does a part that cannot
prepare its differences (see `reloadable_part.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actions.module import StepError
from config_schema.configuration_text import redact_document
from config_schema.schema import ROOT
from config_schema.settings import SettingChange, compare
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.app.configuration import Configuration, read_configuration
from server.app.diff import change_title, without_secrets
from server.app.reload.actions import ActionsReload
from server.app.reload.destinations import DestinationsReload
from server.app.reload.log_targets import LogTargetsReload
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadablePart,
    ReloadIncompleteError,
    ReloadRefusedError,
    error_lines,
)
from server.app.reload.security import SecurityReload
from server.app.reload.statistics import StatisticsReload
from server.app.reload.topics import TopicsReload
from server.app.reload.transports import TransportsReload
from server.app.wiring.drain import DrainError
from server.app.wiring.reload_services import ReloadOperations, ReloadServices
from server.app.wiring.sql_transports import import_libraries

if TYPE_CHECKING:
    from server.admin.pages import ConfigurationText
    from server.app.wiring.source_files import SourceFileWatch
    from server.log.event_log import EventLog
    from server.util.log_protocol import ServerLog

_REASONS: Final[Mapping[str, str]] = {
    "Name": "files and other instances know the instance by its name",
    "Group": "other instances know the instance by it",
    "SOW": "records, queues and subscriptions depend on it",
    "TransactionLog": "the log is opened at the start",
    "Admin": "the interface is made at the start",
    "MessageTypes": "messages are read by it",
    "Modules": "modules are loaded at the start",
    "UserDefinedFunctions": "filters and views use it",
}
"""Why elements need a restart, by the section of the configuration."""


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """Differences that can all be applied.

    Attributes:
        configuration: the configuration that has been read.
        lines: a line for each difference.
        prepared: the differences of each part.
    """

    configuration: Configuration
    lines: tuple[str, ...]
    prepared: list[PreparedChange]

    @property
    def remarks(self) -> list[str]:
        """Consequences that the differences do not show."""
        return [remark for prepared in self.prepared for remark in prepared.remarks]

    async def load(self) -> None:
        """Complete the preparation; the caller has to apply the differences without a wait.

        Raises:
            ReloadRefusedError: they cannot be applied; what has been prepared is released.
        """
        try:
            for prepared in self.prepared:
                await prepared.load()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Release what has been prepared."""
        _discard(self.prepared)


class ConfigurationReload:
    """Reloads the configuration of one instance; used on the engine's thread.

    Args:
        running: the configuration that the instance runs.
        defines: variables given on the command line.
        log: the log.
        parts: the parts that take differences.
        shown: the text of the configuration that the admin interface shows.
        source_files: watches the files of the configuration.
    """

    def __init__(
        self,
        running: Configuration,
        defines: Mapping[str, str],
        log: ServerLog,
        parts: Sequence[ReloadablePart],
        shown: ConfigurationText,
        source_files: SourceFileWatch,
    ) -> None:
        self._running = running
        self._defines = defines
        self._log = log
        self._parts = parts
        self._shown = shown
        self._source_files = source_files
        self._lock = asyncio.Lock()

    @property
    def path(self) -> str:
        """The file of the configuration."""
        return self._running.path

    async def plan(self) -> list[str]:
        """Read the configuration again, and return a line for each difference and consequence.

        Raises:
            ReloadRefusedError: it cannot be used, or a difference needs a restart.
        """
        async with self._lock:
            plan = await self._read_plan()
            plan.discard()
        return [*plan.lines, *plan.remarks]

    async def apply(self) -> list[str]:
        """Read the configuration again, apply the differences, and return lines as `plan` does.

        Raises:
            ReloadRefusedError: as `plan`; nothing has changed.
            ReloadIncompleteError: a part has failed to apply its differences; the others have not.
        """
        async with self._lock:
            try:
                plan = await self._read_plan()
                await plan.load()
            except ReloadRefusedError as error:
                self._log.emit("00-0060", reasons="; ".join(str(error).splitlines()))
                raise
            failures = await self._apply_all(plan)
            self._running = plan.configuration
            self._show(plan.configuration)
        self._log.emit("00-0059", changes="; ".join(plan.lines) or "no differences")
        if failures:
            raise ReloadIncompleteError(
                "applied, except for what has failed: restart the instance\n" + "\n".join(failures)
            )
        count = len(plan.lines)
        applied = f"{count} difference{'' if count == 1 else 's'} applied."
        return [*plan.lines, *plan.remarks, applied]

    async def _apply_all(self, plan: ReloadPlan) -> list[str]:
        """Apply the differences of all parts; return the failures."""
        failures: list[str] = []
        for prepared in plan.prepared:
            try:
                await prepared.apply()
            except Exception as error:
                failures.append(repr(error))
                self._log.emit("01-0004", text="reload of the configuration", error=repr(error))
        return failures

    def _show(self, read: Configuration) -> None:
        if read.document is not None and read.spec is not None:
            self._shown.set(redact_document(read.document), read.spec, read.secrets)
            self._source_files.watch(read.document.files, read.spec)

    async def _read_plan(self) -> ReloadPlan:
        return self._plan(await asyncio.get_running_loop().run_in_executor(None, self._read))

    def _read(self) -> Configuration:
        """Read the configuration, and import what it needs; on a helper thread."""
        read = read_configuration(self.path, self._defines)
        if read.spec is not None:
            import_libraries(read.spec)
        return read

    def _plan(self, read: Configuration) -> ReloadPlan:
        if read.spec is None or read.document is None or not read.document.is_complete:
            raise ReloadRefusedError("\n".join(error_lines(read.problems)))
        before, after, running = self._running.settings, read.settings, self._running.spec
        if before is None or after is None or running is None:
            raise AssertionError("the running configuration and this one can be used")
        reload = ConfigurationChange(running, read.spec, tuple(compare(before, after)))
        if refusals := [
            line for change in reload.changes for line in self._refusals(change, reload)
        ]:
            raise ReloadRefusedError("\n".join(refusals))
        secrets = self._running.secrets | read.secrets
        lines = (_line(without_secrets(change, secrets)) for change in reload.changes)
        return ReloadPlan(read, tuple(lines), self._prepare(reload))

    def _refusals(self, change: SettingChange, reload: ConfigurationChange) -> list[str]:
        """Return why a difference needs a restart; empty if it does not."""
        reasons = (part.check(change, reload) for part in self._parts)
        reason = next((reason for reason in reasons if reason is not None), _reason(change))
        return [_refusal(change, reason)] if reason else []

    def _prepare(self, reload: ConfigurationChange) -> list[PreparedChange]:
        """Prepare the differences of all parts.

        Raises:
            ReloadRefusedError: one of them cannot be applied; none is prepared.
        """
        prepared: list[PreparedChange] = []
        try:
            prepared.extend(part.prepare(reload) for part in self._parts)
        except BaseException:
            _discard(prepared)
            raise
        return prepared


def make_reload(
    running: Configuration,
    defines: Mapping[str, str],
    log: EventLog,
    services: ReloadServices,
) -> ReloadOperations:
    """Return the operations that reload the configuration; see `ConfigurationReload`.

    Args:
        running: the configuration that the instance runs.
        defines: variables given on the command line.
        log: the log.
        services: the parts of the instance.
    """
    parts: list[ReloadablePart] = [
        # first permissions, for new topics as well; without a wait before the topics, which have
        # been checked by the messages and subscriptions of this moment
        SecurityReload(services.engine, services.transports),
        TopicsReload(services.topics, services.queues, services.services),
        LogTargetsReload(log),
        TransportsReload(services.transports, services.certificate_check),
        DestinationsReload(services.engine, services.transports.replication_connector),
        ActionsReload(services.actions),
    ]
    if services.statistics is not None:
        parts.append(StatisticsReload(services.statistics))
    reload = ConfigurationReload(
        running, defines, log, parts, services.shown, services.source_files
    )

    async def plan(_id: str, _parameters: OperationParameters) -> str:
        try:
            lines = await reload.plan()
        except ReloadRefusedError as error:
            raise OperationError(str(error)) from None
        return "\n".join(lines) or "There are no differences."

    async def apply_differences() -> list[str]:
        await services.can_reload.wait()
        try:
            with services.drain.excluded():  # it closes the transports that a reload would open
                return await reload.apply()
        except DrainError as error:
            log.emit("00-0060", reasons=str(error))
            raise ReloadRefusedError(f"No reload: {error}. Cancel the drain first.") from None

    async def apply(_id: str, _parameters: OperationParameters) -> str:
        try:
            return "\n".join(await apply_differences())
        except (ReloadRefusedError, ReloadIncompleteError) as error:
            raise OperationError(str(error)) from None

    async def run_step() -> None:
        try:
            await apply_differences()
        except (ReloadRefusedError, ReloadIncompleteError) as error:
            raise StepError("; ".join(str(error).splitlines())) from None

    operations = (
        AdminOperation("plan", "show the differences that a reload would apply", plan),
        AdminOperation("apply", "read the file again, and apply all differences or none", apply),
    )
    group = OperationGroup(("reload",), operations, lambda: {"configuration": reload.path})
    return ReloadOperations(group, run_step)


def _discard(prepared: list[PreparedChange]) -> None:
    with ExitStack() as closing:  # a failure keeps nothing else open
        for change in prepared:
            closing.callback(change.discard)


def _reason(change: SettingChange) -> str:
    """Return why a difference that no part takes needs a restart."""
    section = change.path.removeprefix(f"{ROOT}/").partition("/")[0]
    return _REASONS.get(section, "it is read at the start")


def _refusal(change: SettingChange, reason: str) -> str:
    side = change.new or change.old
    location = "" if side is None else f" ({side.location})"
    return f"needs a restart: {change_title(change)}{location}: {reason}"


def _line(change: SettingChange) -> str:
    title, old, new = change_title(change), change.old, change.new
    if change.kind != "changed":
        side = new or old
        return f"{title} is {change.kind}{f' ({side.location})' if side else ''}"
    if old is None or new is None:
        raise AssertionError("a setting that changes has both sides")
    return f"{title}: {old.text} -> {new.text} ({new.location})"
