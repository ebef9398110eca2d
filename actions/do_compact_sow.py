"""amps-action-do-compact-sow: unused space of topics with records is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepFailed
from actions.options import optional
from server.engine.maintenance.sow_compaction import compact
from server.storage.sow.store import StoreError
from server.storage.sow.topic_records import SowTopic

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services
    from actions.step_options import StepOptions


class DoCompactSow(Step):
    """Compacts the file of one topic, or of all."""

    time_limit: ClassVar[float] = 3600.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._topic = optional(options, "Topic")
        self._message_type = optional(options, "MessageType")

    def provision(self, services: Services) -> None:
        """Keep a reference to the topics."""
        self._stores = services.engine.stores

    async def run(self, context: Context) -> None:
        """Compact.

        Raises:
            StepFailed: the topic keeps no records, or there is no room to work in.
        """
        topics = list(self._stores.topics)
        if self._topic is not None and self._message_type is not None:
            topic = self._topic.expand_text(context)
            sow = self._stores.find(self._message_type.expand_text(context), topic)
            if not isinstance(sow, SowTopic):
                raise StepFailed(f"topic {topic!r} keeps no records of its own")
            topics = [sow]
        for sow in topics:
            try:
                await compact(sow)
            except StoreError as error:
                raise StepFailed(f"topic {sow.spec.name!r}: {error}") from None
