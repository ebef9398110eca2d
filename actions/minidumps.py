"""Minidumps: on request of an action or the admin interface, and the trigger on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, Trigger
from server.queues.topic.report import report
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from actions.action import Action
    from actions.context import ActionContext
    from actions.services import ActionServices


async def take_minidump(
    services: ActionServices, context: ActionContext | None = None
) -> Path | None:
    """Write a minidump, and the state of the queues to the log; run the actions on minidumps.

    Args:
        services: the instance.
        context: the run of an action that requests it.

    Returns:
        The file; None if the configuration disables minidumps.

    Raises:
        OSError: the file cannot be written.
    """
    engine = services.engine
    queues = engine.topics.queues
    if queues is not None:
        engine.log.emit("31-0010", text=report(queues, engine.clock.steady()))
    path = await services.helper_threads.call(services.write_minidump)
    if path is None:
        engine.log.emit("30-0011")
        return None
    engine.log.emit("30-0010", path=path)
    services.current_run = context
    try:
        for listener in services.minidump_listeners:
            listener.post({"AMPS_MINIDUMP_PATH": text_to_bytes(str(path))})
    finally:
        services.current_run = None
    return path


class DoMinidump(Step):
    """Writes a minidump, and the state of the queues to the log; actions on minidumps run."""

    time_limit: ClassVar[float] = 60.0

    async def run(self, context: ActionContext) -> None:
        """Write the minidump.

        Raises:
            OSError: the file cannot be written.
        """
        await take_minidump(self.services, context)


class OnMinidump(Trigger):
    """Runs when a minidump has been written."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for it."""
        self.add_listener(services.minidump_listeners, action)
