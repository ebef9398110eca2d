"""amps-action-do-compact-sow: unused space of topics with records is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError
from actions.options import optional
from server.engine.maintenance.sow_compaction import compact
from server.storage.sow.store import RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoCompactSow(Step):
    """Compacts the file of one topic, or of all."""

    time_limit: ClassVar[float] = 3600.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._topic = optional(options, "Topic")
        self._message_type = optional(options, "MessageType")

    async def run(self, context: ActionContext) -> None:
        """Compact.

        Raises:
            StepError: the topic keeps no records, or there is no room to work in.
        """
        topics = list(self.services.engine.sow_registry.topics)
        if self._topic is not None and self._message_type is not None:
            topic = self._topic.expand_text(context)
            sow = self.services.engine.sow_registry.find(
                self._message_type.expand_text(context), topic
            )
            if not isinstance(sow, SowTopicRecords):
                raise StepError(f"topic {topic!r} keeps no records of its own")
            topics = [sow]
        for sow in topics:
            try:
                await compact(sow)
            except RecordStoreError as error:
                raise StepError(f"topic {sow.spec.name!r}: {error}") from None
