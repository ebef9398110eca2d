"""amps-action-do-minidump: writes a minidump. The instance goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step
from server.base.octets import to_octets
from server.topics.queue_report import report

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoMinidump(Step):
    """Writes a minidump, and how the queues are to the log; actions run that wait for one."""

    time_limit: ClassVar[float] = 60.0

    def provision(self, services: Services) -> None:
        """Take note of the instance."""
        self._services = services

    async def run(self, context: Context) -> None:
        """Write it.

        Raises:
            OSError: the file cannot be written.
        """
        services = self._services
        queues = services.engine.topics.queues
        if queues is not None:
            now = services.engine.clock.now()
            services.engine.log.emit("31-0010", text=report(queues, now))
        path = await services.helpers.call(services.write_minidump)
        if path is None:
            services.engine.log.emit("30-0011")
            return
        services.engine.log.emit("30-0010", path=path)
        services.running = context
        try:
            for listener in services.minidump_listeners:
                listener.post({"AMPS_MINIDUMP_PATH": to_octets(str(path))})
        finally:
            services.running = None
